// What a process says to rank 0 when it comes to the place where a job's ranks meet on one machine, and why
// rank 0 may not let it in.
//
//   send_message(socket, greeting(rank, job));                                  // who comes
//   const Guest guest = read_greeting(hello.text, peer_pid(socket));            // rank 0
//   if (const std::string why = objection(host, size, guest, taken_by); !why.empty()) throw Mismatch(why);
//
// Two processes that come as one rank, or ranks of two jobs: all that have come by then are told, so that no
// group is made of both.
#pragma once

#include <optional>
#include <string>

#include "lockstep/comm/meeting/job_identity.h"
#include "lockstep/os/process.h"

namespace lockstep {

struct Guest {
  int rank = -1;
  pid_t pid = 0;
  JobFingerprint job;
};

std::string greeting(int rank, const JobFingerprint& job);
Guest read_greeting(const std::string& text, pid_t pid);

// Why `guest` cannot be a rank of the `size` that `host`, rank 0, waits for: another job, or a rank that
// `taken_by` is already (0: nobody): "group of 4: ...". Empty if it can.
std::string objection(const Guest& host, int size, const Guest& guest, pid_t taken_by);

}  // namespace lockstep
