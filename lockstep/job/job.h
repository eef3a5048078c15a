// The job this process belongs to: joining it, leaving it, and who is who.
//
//   int main() {
//     lockstep::init_process_group();                       // the environment decides; alone, a group of one
//     std::printf("rank %d of %d\n", lockstep::get_rank(), lockstep::get_world_size());
//     ...
//     lockstep::destroy_process_group();                    // optional: leaving main does the same
//   }
//
// The same program runs alone, under `lockstep run -n 4`, under torchrun, mpirun and srun on one machine, and with RANK and
// WORLD_SIZE set by hand.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "lockstep/comm/process_group.h"

namespace lockstep {

struct InitOptions {
  std::string init_method = {};  // "" or "env://": the environment; "file:///path": meet through a file
  std::optional<int> rank = {};  // both or neither; override the environment
  std::optional<int> world_size = {};
  // Defaults: $LOCKSTEP_TIMEOUT seconds or 30 minutes, and $LOCKSTEP_WARN_AFTER seconds or 5 seconds.
  std::optional<std::chrono::milliseconds> timeout = {};
  std::optional<std::chrono::milliseconds> warn_after = {};
};

// Joins the job and makes the group of all ranks, the world. `backend` is "auto" ($LOCKSTEP_BACKEND, else self for one
// rank and shm for more), "self" or "shm".
//
// Who         every process of the job. Blocks until all ranks are here or the timeout has passed; the error then names
//             who is missing.
// Throws      InvalidArgument: already initialised ("call destroy_process_group() first"), an unknown backend, rank and
//             world size that do not fit; PeerLost and Timeout while meeting.
void init_process_group(const std::string& backend = "auto", const InitOptions& options = {});

// Leaves the job: pending work is dropped, peers that still need this rank get PeerLost("left"). A new
// init_process_group() may follow. Throws InvalidArgument when not initialised.
void destroy_process_group();

bool is_initialized();

// The group of all ranks. Throws InvalidArgument when not initialised, as do the functions below.
const ProcessGroup& world();

int get_rank();
int get_world_size();
int get_local_rank();
std::string get_backend();

}  // namespace lockstep
