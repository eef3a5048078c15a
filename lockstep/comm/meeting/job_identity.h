// JobIdentity: distinguishes a job from other jobs that run at the same time. JobFingerprint: the facts that
// ranks compare when they meet.
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
  std::string job;  // the launcher's name for the job, the same on all machines; "" if it has none
  // The process that started this machine's ranks and lives as long as they; "" if unknown.
  std::string launcher;
};
JobIdentity job_identity(const JobEnvironment& place);

// Identifies this machine for its processes: the boot of its kernel, and the process namespace (of a
// container).
std::string machine_identity();
std::string user_identity();  // the user's number

struct JobFingerprint {
  int size = 0;               // number of ranks; 0 is not compared, nor is "" below
  std::string source = {};    // "MPICH", "by hand"
  std::string job = {};       // JobIdentity's
  std::string launcher = {};  // JobIdentity's, if one launcher started all ranks
  std::string user = {};      // only if all ranks are on one machine
};
// A field that is empty on one side is not compared.
bool is_same_job(const JobFingerprint& one, const JobFingerprint& other);

// One line of at most about 1,000 bytes for other ranks, and one for people.
std::string pack(const JobFingerprint& job);
JobFingerprint unpack_fingerprint(const std::string& text);  // accepts any text; missing fields are empty
std::string describe(const JobFingerprint& job);  // "2 ranks started by MPICH (process 4711 ..., user 0)"

// The advice at the end of a message about two jobs that have met.
inline constexpr const char* TELL_JOBS_APART =
    "jobs that run at the same time need launchers of their own or, started by hand, each its own "
    "MASTER_PORT";

}  // namespace lockstep
