// The job of this process: joining it, leaving it, and the numbers of its ranks.
//
//   int main() {
//     lockstep::init_process_group();                       // by the environment; alone, a group of one
//     std::printf("rank %d of %d\n", lockstep::get_rank(), lockstep::get_world_size());
//     train();
//     lockstep::destroy_process_group();                    // optional: leaving main does the same
//   }
//
// The same program runs without a launcher, under `lockstep run`, torchrun, mpirun and srun, and with RANK,
// WORLD_SIZE, MASTER_ADDR and MASTER_PORT set by hand. It runs on one machine, or on several that share a
// secret. rendezvous_plan.h has the rules, and `lockstep info` prints their result.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/base/visibility.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/store/store.h"

namespace LOCKSTEP_PUBLIC lockstep {

struct InitOptions {
  // "" or "env://": by the environment. "tcp://10.0.0.1:29500": at this address, which rank 0 serves; rank
  // and world_size are given below, or as "?rank=0&world_size=2". "file:///path": through a file, for ranks
  // on one machine.
  std::string init_method = {};
  std::optional<int> rank = {};  // both or neither; they override the environment
  std::optional<int> world_size = {};
  // Meet over this store instead of init_method. Every process that can use it is trusted.
  std::shared_ptr<Store> store = {};
  // Defaults: $LOCKSTEP_TIMEOUT seconds or 30 minutes, and $LOCKSTEP_WARN_AFTER seconds or 5 seconds. The
  // timeout of a wait counts from the last progress. Time in which this process is stopped (Ctrl-Z, SIGSTOP,
  // a cgroup's freezer; running_clock.h) does not count. A wait that takes longer than `warn_after` names the
  // ranks that it waits for, also while ranks meet.
  std::optional<std::chrono::milliseconds> timeout = {};
  std::optional<std::chrono::milliseconds> warn_after = {};
  // The results have the same bits with any number of processes up to this one (virtual_ranks.h). Default:
  // $LOCKSTEP_VIRTUAL_RANKS, else none.
  std::optional<int> virtual_ranks = {};
};

// Joins the job and makes the group of all ranks, the world. `backend` is a name that `lockstep info` lists,
// or one for each device ("cpu:hierarchical,cuda:nccl"), or "auto". "auto" means $LOCKSTEP_BACKEND, else self
// for one rank, shm if all ranks are on one machine, hierarchical if not. Ranks that meet over a network
// prove that they share a machine by passing a descriptor (same_machine.h); a host name is no proof.
//
// Who         every process of the job, with the same backend. Blocks until all ranks have come or the
//             timeout has passed; the error then names the missing ranks.
// Throws      InvalidArgument: already initialised ("call destroy_process_group() first"), an unknown
//             backend, a rank that is out of range, several machines without a secret, rank and world size by
//             hand without MASTER_PORT, fewer virtual ranks than processes. Mismatch: ranks ask for different
//             backends or numbers of virtual ranks, ranks of two jobs have met, or two processes use one
//             rank. StoreError: another secret. SystemError: the store's port is taken. PeerLost and Timeout
//             while ranks meet.
void init_process_group(const std::string& backend = "auto", const InitOptions& options = {});

// Leaves the job and all groups made in it (groups.h). Drops pending work; peers that still need this rank
// get PeerLost ("has left the group"). A new init_process_group() may follow. Throws InvalidArgument if not
// initialised.
void destroy_process_group();

bool is_initialized();

// The group of all ranks. This function and those below throw InvalidArgument if not initialised.
const ProcessGroup& world();

int get_rank();
int get_world_size();
// The rank's number on this machine: the launcher's LOCAL_RANK, else the number of lower ranks on this
// machine.
int get_local_rank();
// How many of the job's ranks have a number on this machine (LOCAL_WORLD_SIZE), which of the job's machines
// this is, and how many there are: Horovod's local_size, cross_rank and cross_size. Machines are numbered by
// their first rank. Two launchers of one machine are two machines here (place_on_node.h).
int get_local_world_size();
int get_node_rank();
int get_node_count();
std::string get_backend();

// How many times the job was restarted before: by `lockstep run --max-restarts` or torchrun, and by Slurm's
// requeue. 0 at the first start. Needs no init_process_group().
int restart_count();

}  // namespace lockstep
