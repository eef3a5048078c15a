// Introduction: what each rank says of itself, when all have met and before anything is made of them.
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
  int virtual_ranks = 0;  // 0: none
  int local_rank = -1;    // the launcher's number on this machine; -1: it gives none
  std::string job = {};   // its fingerprint, packed
  std::string boot_id = {};
  std::string address = {};
  std::string offer = {};
  std::string layout = layout_version();
};

std::string pack(const Introduction& mine);
Introduction unpack_introduction(const std::string& text,
                                 std::string_view caller = "init_process_group");  // throws StoreError

// Throws Mismatch, the same on every rank, unless all run builds that understand each other, belong to one
// job and ask for one backend. `caller` is whom the message speaks for. Pure.
void check_introductions(const std::vector<Introduction>& all,
                         std::string_view caller = "init_process_group");

// Collective. Introduces this rank to all others, and them to it, and checks all.
std::vector<Introduction> introduce(Meeting& meeting, const Introduction& mine, Deadline deadline,
                                    std::string_view caller = "init_process_group");

}  // namespace lockstep
