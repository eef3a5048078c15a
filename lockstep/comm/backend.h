// Backend: what one way of moving bytes between ranks must provide. Written by backend authors, not used by
// programs.
//
// The free functions in comm/collectives/ check every argument once and then call start(); a backend may
// rely on counts, roots, peers, dtypes and operators being valid. It serves every verb, and groups of one
// rank too. Several operations of a group may be under way at once. How to add a backend, step by step:
// CONTRIBUTING.md.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/dtype.h"
#include "lockstep/base/error.h"
#include "lockstep/base/visibility.h"
#include "lockstep/comm/device_streams.h"
#include "lockstep/comm/purpose.h"
#include "lockstep/comm/work.h"

namespace LOCKSTEP_PUBLIC lockstep {

class TraceMemory;

enum class Verb : std::uint8_t {
  BARRIER,
  BROADCAST,
  ALL_REDUCE,
  REDUCE,
  ALL_GATHER,
  GATHER,
  SCATTER,
  REDUCE_SCATTER,
  ALL_TO_ALL,
  SEND,
  RECV,
};
inline constexpr int VERB_COUNT = 11;
std::string_view name_of(Verb verb);
constexpr bool is_message(Verb verb) { return verb == Verb::SEND || verb == Verb::RECV; }

inline constexpr int ANY_SOURCE = -1;  // RECV: from whoever sends first

// One rank's call, after validation. Counts are elements of `dtype`, ranks are those of the group. What a
// verb uses:
//
//   verb            count            input          output         inputs           outputs
//   BROADCAST       of the buffer    the buffer     the buffer
//   ALL_REDUCE      of the buffer    the buffer     the buffer
//   REDUCE          of the buffer    the buffer     the buffer, written on the root only
//   ALL_GATHER      of the input     contribution                                   one per rank
//   GATHER          of the input     contribution                                   root: one per rank
//   SCATTER         of the output                   received       root: one per rank
//   REDUCE_SCATTER  of the output                   received       one per rank
//   ALL_TO_ALL      of all inputs                                  one per rank     one per rank
//   SEND            of the message   the message
//   RECV            of the message                  the message
//
// Lists hold one entry per rank, which may differ in size. Sizes that belong together on two ranks (what one
// contributes and the other expects) must be equal; a backend checks that and fails the group with Mismatch.
struct Request {
  Verb verb = Verb::BARRIER;
  DType dtype = DType::UINT8;
  ReduceOp op = ReduceOp::SUM;  // ALL_REDUCE, REDUCE, REDUCE_SCATTER
  // BROADCAST, REDUCE, GATHER, SCATTER: root; SEND, RECV: the peer, or ANY_SOURCE; else the mark of `acting`,
  // equal on all ranks
  int root = 0;
  int tag = 0;                          // SEND, RECV; negative tags are the library's own
  ActingState acting;                   // on whose behalf
  DeviceType device = DeviceType::CPU;  // whose memory the buffers are
  std::size_t count = 0;
  const void* input = nullptr;
  void* output = nullptr;
  std::vector<std::span<const std::byte>> inputs;
  std::vector<std::span<std::byte>> outputs;
  bool is_whole = false;  // ALL_GATHER, REDUCE_SCATTER: on every rank the list is one buffer in equal parts
  bool async_op =
      true;  // false: the caller waits for it at once, so that it may be carried out within start()
  std::shared_ptr<void> keep_alive;  // whatever owns the buffers; released when the work is done
};

struct GroupOptions {
  std::chrono::milliseconds timeout = std::chrono::minutes(30);  // without progress, then the wait fails
  std::chrono::milliseconds warn_after = std::chrono::seconds(5);
};

// Groups to make of some of a group's ranks. `parts` are disjoint lists of ranks of the group, each in the
// order of its new ranks, with at least one rank each.
struct SplitRequest {
  enum class Callers { EVERY_RANK, MEMBERS };

  std::vector<std::vector<int>> parts;
  std::string name;
  GroupOptions options;
  Callers callers = Callers::EVERY_RANK;  // MEMBERS: there is one part, and its ranks alone make the call
};

class Backend {
 public:
  virtual ~Backend() = default;  // must not communicate

  virtual std::string_view name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const std::string& group_name() const = 0;

  // Posts the operation and returns it, or null if it is done already (a RECV never: it is asked where its
  // message came from); what waiting for it means is in work.h. Throws when the group is closed, or when a
  // rank has already posted something else for the same sequence number.
  virtual std::shared_ptr<WorkState> start(Request request) = 0;

  // Memory that collectives on this group use in place, without copying; plain memory where a backend has
  // none. Zeroed, 64-byte aligned. Throws SystemError when it cannot be reserved. Freed with the last
  // reference.
  virtual std::shared_ptr<void> allocate_shared(std::size_t bytes) = 0;

  // For ranks that have memory in common (comm/collectives/common_memory.h); a backend whose ranks have none
  // leaves these as they are. Null: none.
  //
  // Memory like that of allocate_shared() which all ranks of the group hold. This rank, which makes it, holds
  // it from now on, the others once they have called hold_common(). It is free when all have let it go.
  virtual std::shared_ptr<void> make_common(std::size_t /*bytes*/) { return nullptr; }
  virtual std::shared_ptr<void> hold_common(int /*maker*/, std::uint64_t /*place*/, std::size_t /*bytes*/) {
    return nullptr;
  }
  // The place of memory of make_common() or allocate_shared(): a number that other ranks pass with this rank.
  virtual std::optional<std::uint64_t> place_of(const void* /*memory*/) { return std::nullopt; }
  // Where this process sees the memory of another rank. Mapped as long as it is held; whose it is and how
  // long it means something is the ranks' agreement.
  virtual std::shared_ptr<std::byte> memory_of(int /*rank*/, std::uint64_t /*place*/, std::size_t /*bytes*/) {
    return nullptr;
  }

  // Makes the groups of a SplitRequest. The answer is the group of the part that this rank is in, or null.
  // Destroying and making groups again does not grow anything. A backend implements this one; split() and
  // split_over() are the two ways to call it.
  virtual std::shared_ptr<Backend> make_groups(const SplitRequest& split) = 0;
  // Every rank of this group calls it with the same arguments, in the same order as its collectives. Blocks
  // until all have called it. The caller has checked that the parts are disjoint and not empty.
  std::shared_ptr<Backend> split(const std::vector<std::vector<int>>& parts, const std::string& name,
                                 const GroupOptions& options) {
    return make_groups({parts, name, options, SplitRequest::Callers::EVERY_RANK});
  }
  // The group of `members` alone, as MPI_Comm_create_group makes it: only they call it, and it blocks until
  // all of them have. This rank is one of them. Two ranks make the groups that both are in in the same order;
  // a rank that names other members fails this group with Mismatch. What the members tell each other are
  // messages of this group, so other ranks may be anywhere in their programs.
  std::shared_ptr<Backend> split_over(const std::vector<int>& members, const std::string& name,
                                      const GroupOptions& options) {
    return make_groups({{members}, name, options, SplitRequest::Callers::MEMBERS});
  }

  // For a wait on another backend of this process, with no lock held: what it waits for may hang on
  // operations of groups that make progress only in calls.
  virtual void help() {}
  // For who waits for something else than this group's operations: fails the group if a rank that has not
  // left it is dead, and throws its failure if it has one. Does not wait.
  virtual void check_peers() {}
  // Whether requests may have buffers in that device's memory.
  virtual bool serves(DeviceType device) const { return device == DeviceType::CPU; }
  // Of the device whose memory it serves besides the CPU's; -1: none.
  virtual int device_index() const { return -1; }
  // Where this rank's records are kept; null where a backend keeps none.
  virtual std::shared_ptr<TraceMemory> trace() const { return nullptr; }

  // Fails every pending and later operation, on every rank, with `reason`. `code` and `peer` are those of the
  // error that made this rank call it; ABORTED and -1 where the program did.
  virtual void abort(const std::string& reason, ErrorCode code, int peer) = 0;
  // Leaves the group: later calls here throw Aborted, peers that need this rank get PeerLost. Does not wait.
  virtual void close() = 0;
};

}  // namespace lockstep
