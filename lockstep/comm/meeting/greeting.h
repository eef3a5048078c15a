// A greeting is the first message of a process to rank 0 when the ranks of a job meet on one machine. An
// objection is rank 0's reason to refuse that process.
//
//   send_message(socket, greeting(rank, job));                                  // the new process
//   const Guest guest = read_greeting(hello.text, peer_pid(socket));            // rank 0
//   if (const std::string why = objection(host, size, guest, taken_by); !why.empty()) throw Mismatch(why);
//
// Two processes may come as the same rank, or ranks of two jobs may meet. Rank 0 then tells every process
// that has come, so that no group contains processes of both.
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

// Returns the reason why `guest` cannot be one of the `size` ranks of rank 0, `host`: "group of 4: ...";
// empty if there is none. The guest belongs to another job, its rank is outside the group, or process
// `taken_by` already has that rank (0: no process).
std::string objection(const Guest& host, int size, const Guest& guest, pid_t taken_by);

}  // namespace lockstep
