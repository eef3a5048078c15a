// A JobIdentity distinguishes a job from other jobs that run at the same time. A JobFingerprint is compared
// by ranks when they meet.
//
//   const JobIdentity identity = job_identity(job_environment());
//   identity.launcher                     "process 4711 started at tick 66123 in process namespace
//                                         4026531836"
//
//   JobFingerprint mine{
//       .size = 2, .source = "MPICH", .launcher = identity.launcher, .user = user_identity()};
//   if (!is_same_job(mine, unpack_fingerprint(text_of_another_rank))) ...  // two jobs have met at one place
//
// docs/clusters.md has a table of the distinguishing facts under each launcher.
#pragma once

#include <string>

#include "lockstep/base/environment.h"

namespace lockstep {

struct JobIdentity {
  std::string job;       // the launcher's name for the job, the same on all machines; "": it gives none
  std::string launcher;  // the common starter of this machine's ranks, alive as long as they; "": unknown
};
JobIdentity job_identity(const JobEnvironment& place);

// Names this machine as its processes see it: the start of its kernel, and the process namespace (of a
// container).
std::string machine_identity();
std::string user_identity();  // the user's number

struct JobFingerprint {
  int size = 0;               // ranks; 0: not to be compared, as with "" below
  std::string source = {};    // "MPICH", "by hand"
  std::string job = {};       // JobIdentity's
  std::string launcher = {};  // JobIdentity's, where one launcher has started all ranks
  std::string user = {};      // where all ranks are on one machine
};
// A field that is empty on either side is not compared.
bool is_same_job(const JobFingerprint& one, const JobFingerprint& other);

// One line of at most about 1,000 bytes, for other ranks; and the same for people.
std::string pack(const JobFingerprint& job);
JobFingerprint unpack_fingerprint(const std::string& text);  // of anything: what it lacks is empty
std::string describe(const JobFingerprint& job);  // "2 ranks started by MPICH (process 4711 ..., user 0)"

// What to do about two jobs that have met, for the end of a message.
inline constexpr const char* TELL_JOBS_APART =
    "jobs that run at the same time need launchers of their own or, started by hand, each its own "
    "MASTER_PORT";

}  // namespace lockstep
