// Backend: the interface of a way to move bytes between ranks. Backend authors implement it; programs do not
// use it.
//
// The free functions in comm/collectives/ check every argument once and then call start(). So a backend may
// rely on valid counts, roots, peers, dtypes and operators. It serves every verb, and groups of one rank too.
// Several operations of a group may be under way at once. CONTRIBUTING.md says step by step how to add a
// backend.
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

inline constexpr int ANY_SOURCE = -1;  // RECV: from the rank that sends first

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
// Lists hold one entry per rank, and entries may differ in size. Where one rank contributes what another
// expects, the two sizes must be equal. A backend checks that and fails the group with Mismatch.
struct Request {
  Verb verb = Verb::BARRIER;
  DType dtype = DType::UINT8;
  ReduceOp op = ReduceOp::SUM;  // ALL_REDUCE, REDUCE, REDUCE_SCATTER
  // BROADCAST, REDUCE, GATHER, SCATTER: the root. SEND, RECV: the peer, or ANY_SOURCE. Otherwise: the mark of
  // `acting`, which is equal on all ranks
  int root = 0;
  int tag = 0;                          // SEND, RECV; negative tags belong to the library
  ActingState acting;                   // the part of the library that makes the call
  DeviceType device = DeviceType::CPU;  // the device whose memory holds the buffers
  std::size_t count = 0;
  const void* input = nullptr;
  void* output = nullptr;
  std::vector<std::span<const std::byte>> inputs;
  std::vector<std::span<std::byte>> outputs;
  bool is_whole = false;  // ALL_GATHER, REDUCE_SCATTER: on every rank the list is one buffer in equal parts
  bool async_op = true;   // false: the caller waits for it at once, so start() may complete it
  std::shared_ptr<void> keep_alive;  // owner of the buffers; released when the work is done
};

struct GroupOptions {
  // longest time without progress; then the wait fails
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
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

  // Posts the operation and returns it, or null if it is complete already. (A RECV never returns null,
  // because its caller asks where the message came from.) work.h says what waiting means. Throws when the
  // group is closed, or when a rank has already posted another call for the same sequence number.
  virtual std::shared_ptr<WorkState> start(Request request) = 0;

  // Returns memory that collectives on this group use in place, without copying; plain memory if the backend
  // has no such memory. Zeroed, 64-byte aligned. Throws SystemError when it cannot be reserved. Freed with
  // the last reference.
  virtual std::shared_ptr<void> allocate_shared(std::size_t bytes) = 0;

  // For ranks that have memory in common (comm/collectives/common_memory.h). A backend without such memory
  // does not override these functions. Null: there is none.
  //
  // Makes memory like that of allocate_shared(), but not zeroed, for as many ranks as `holders`. This rank is
  // one of them: it holds the memory from now on, and each of the others once it has called hold_common().
  // The memory is free when all of them have let it go.
  virtual std::shared_ptr<void> make_common(std::size_t /*bytes*/, int /*holders*/) { return nullptr; }
  virtual std::shared_ptr<void> hold_common(int /*maker*/, std::uint64_t /*place*/, std::size_t /*bytes*/) {
    return nullptr;
  }
  // Returns the place of memory of make_common() or allocate_shared(): a number that other ranks pass
  // together with this rank.
  virtual std::optional<std::uint64_t> place_of(const void* /*memory*/) { return std::nullopt; }
  // Maps the memory of another rank into this process as long as the result is held. The ranks must agree on
  // its owner and on how long it is valid.
  virtual std::shared_ptr<std::byte> memory_of(int /*rank*/, std::uint64_t /*place*/, std::size_t /*bytes*/) {
    return nullptr;
  }

  // The ranks of each machine, where some have memory in common with others of their machine, and not all
  // are on one. Empty otherwise.
  virtual std::vector<std::vector<int>> machines() const { return {}; }

  // Makes the groups of a SplitRequest. Returns the group of the part that this rank is in, or null.
  // Destroying groups and making them again uses no more memory each time. A backend implements this
  // function; split() and split_over() are the two ways to call it.
  virtual std::shared_ptr<Backend> make_groups(const SplitRequest& split) = 0;
  // Every rank of this group calls it with the same arguments, in the same order as its collectives. Blocks
  // until all have called it. The caller has checked that the parts are disjoint and not empty.
  std::shared_ptr<Backend> split(const std::vector<std::vector<int>>& parts, const std::string& name,
                                 const GroupOptions& options) {
    return make_groups({parts, name, options, SplitRequest::Callers::EVERY_RANK});
  }
  // Makes a group of `members` alone, as MPI_Comm_create_group does. Only the members call it, and it blocks
  // until all of them have. This rank is one of them. Two ranks make the groups that both are in in the same
  // order. A rank that names other members fails this group with Mismatch. The members exchange messages of
  // this group, so other ranks may be anywhere in their programs.
  std::shared_ptr<Backend> split_over(const std::vector<int>& members, const std::string& name,
                                      const GroupOptions& options) {
    return make_groups({{members}, name, options, SplitRequest::Callers::MEMBERS});
  }

  // Called by a wait on another backend of this process, with no lock held. That wait may depend on
  // operations of this group, which make progress only in calls.
  virtual void help() {}
  // Called by a wait that is not for this group's operations. Fails the group if a rank that has not left it
  // is dead, and throws the group's failure if it has one. Does not wait.
  virtual void check_peers() {}
  // Returns whether buffers may be in that device's memory.
  virtual bool serves(DeviceType device) const { return device == DeviceType::CPU; }
  // Index of the device whose memory it serves besides the CPU's; -1 if there is none.
  virtual int device_index() const { return -1; }
  // This rank's trace memory; null if the backend keeps none.
  virtual std::shared_ptr<TraceMemory> trace() const { return nullptr; }

  // Fails every pending and later operation, on every rank, with `reason`. `code` and `peer` are those of the
  // error that made this rank call it; ABORTED and -1 if the program called it.
  virtual void abort(const std::string& reason, ErrorCode code, int peer) = 0;
  // Leaves the group. Later calls here throw Aborted, and peers that need this rank get PeerLost. Does not
  // wait.
  virtual void close() = 0;
};

}  // namespace lockstep
