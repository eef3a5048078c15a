// Introduction: the facts that each rank sends to all others when they have met, before the group is made.
//
//   const std::vector<Introduction> all =
//       introduce(meeting, {.backend = "auto", .job = pack(fingerprint)}, deadline);
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/comm/backends/layout_version.h"
#include "lockstep/comm/meeting/meeting.h"

namespace lockstep {

struct Introduction {
  std::string backend;
  int virtual_ranks = 0;  // 0 if there are none
  int local_rank = -1;    // the launcher's number on this machine; -1 if it gives none
  std::string job = {};   // the packed fingerprint of its job
  std::string boot_id = {};
  std::string address = {};
  std::string offer = {};
  std::string layout = layout_version();
};

std::string pack(const Introduction& mine);
Introduction unpack_introduction(const std::string& text,
                                 std::string_view caller = "init_process_group");  // throws StoreError

// Throws the same Mismatch on every rank, unless all run compatible builds, belong to one job and ask for one
// backend. `caller` is the function that the message names. Pure.
void check_introductions(const std::vector<Introduction>& all,
                         std::string_view caller = "init_process_group");

// Collective. Exchanges the introductions of all ranks and checks them.
std::vector<Introduction> introduce(Meeting& meeting, const Introduction& mine, Deadline deadline,
                                    std::string_view caller = "init_process_group");

}  // namespace lockstep
