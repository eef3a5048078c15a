// Membership: the ranks of a group over shared memory, and where the memory of each lies. Plain facts, fixed
// when the group is made.
//
//   const std::byte* data = membership.block(rank, offset, bytes);   // of another rank's segment
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/comm/backend.h"
#include "lockstep/comm/backends/segment/rank_memory.h"
#include "lockstep/comm/group/group_failure.h"
#include "lockstep/comm/trace/trace_memory.h"

namespace lockstep::shared {

// What a rank knows about the other processes, apart from their shared memory.
class Peers {  // by rank in the world
 public:
  virtual ~Peers() = default;
  virtual bool alive(int rank) const = 0;
  virtual std::string detail(int rank) const = 0;  // "pid 4121" or nothing
  virtual bool stopped(int rank) const = 0;        // by SIGSTOP or a debugger
  // Whether every rank can read the private memory of every other.
  virtual bool lend_private_memory() const = 0;
  // Reads private memory. Returns false if its owner has ended.
  virtual bool read(int rank, std::uint64_t address, std::span<std::byte> to) const = 0;
};

struct Membership {
  int rank = 0;
  int size = 1;
  std::string group_name;
  std::string backend_name;
  std::vector<int> world_ranks;  // by rank; empty: equal to the ranks
  // by rank of the world, if that is one machine of several; empty: equal to the ranks
  std::vector<int> job_ranks;
  std::shared_ptr<std::byte> control;               // the control segment, made for `size` ranks
  std::vector<std::shared_ptr<SharedMemory>> data;  // by rank
  std::shared_ptr<RankMemory> own;                  // this rank's own segment
  std::shared_ptr<Peers> peers;
  std::shared_ptr<TraceMemory> trace;  // this rank's trace
  GroupOptions options;

  int world_rank(int of) const {
    return world_ranks.empty() ? of : world_ranks.at(static_cast<std::size_t>(of));
  }
  // Returns the number by which messages name the rank.
  int job_rank(int of) const {
    const int in_world = world_rank(of);
    return job_ranks.empty() ? in_world : job_ranks.at(static_cast<std::size_t>(in_world));
  }
  std::vector<int> all_job_ranks() const;  // by rank; empty: equal to the ranks
  // The place that this rank's errors name.
  GroupPlace place() const;

  bool is_alive(int of) const { return peers->alive(world_rank(of)); }
  bool is_stopped(int of) const { return peers->stopped(world_rank(of)); }
  // Returns the address of `bytes` bytes at `offset` in a rank's data segment. Throws InternalError if they
  // are not inside it.
  std::byte* block(int of, std::uint64_t offset, std::size_t bytes) const;
  // Copies from `address` in a rank's private memory. Returns false if the memory is not there (any more).
  bool read_private(int of, std::uint64_t address, std::span<std::byte> to) const {
    return peers->read(world_rank(of), address, to);
  }
};

}  // namespace lockstep::shared
