// Backend: what one way of moving bytes between ranks must provide. Written by backend authors, not used by programs.
//
// The free functions in comm/collectives/ check every argument once and then call start(); a backend may rely on counts,
// roots, peers and dtypes being valid, and on operations it does not support being refused by name in `supports`.
// A new backend is a folder entry in comm/backends/ and one row of backends/registry.cpp.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/dtype.h"
#include "lockstep/comm/work.h"

namespace lockstep {

enum class Verb : std::uint8_t { BARRIER, BROADCAST, ALL_REDUCE, ALL_GATHER, SEND, RECV };
std::string_view name_of(Verb verb);

// One rank's call, after validation. Counts are elements of `dtype`.
struct Request {
  Verb verb = Verb::BARRIER;
  DType dtype = DType::UINT8;
  ReduceOp op = ReduceOp::SUM;  // ALL_REDUCE
  int root = 0;                 // BROADCAST: root; SEND, RECV: the peer
  int tag = 0;                  // SEND, RECV
  std::size_t count = 0;        // elements this rank contributes or, for RECV, expects
  const void* input = nullptr;  // ALL_REDUCE in place: equal to output
  void* output = nullptr;
  std::vector<std::span<std::byte>> outputs;  // ALL_GATHER: one per rank, which may differ in size
  std::shared_ptr<void> keep_alive;           // whatever owns the buffers; released when the work is done
};

struct GroupOptions {
  std::chrono::milliseconds timeout = std::chrono::minutes(30);  // without progress, then the wait fails
  std::chrono::milliseconds warn_after = std::chrono::seconds(5);
};

class Backend {
 public:
  virtual ~Backend() = default;  // must not communicate

  virtual std::string_view name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const std::string& group_name() const = 0;

  // Posts the operation and returns. Throws when the group is closed, or when a rank has already posted something else
  // for the same sequence number.
  virtual std::shared_ptr<WorkState> start(Request request) = 0;

  // Memory that collectives on this group use in place, without copying; plain memory where a backend has none.
  // Zeroed, 64-byte aligned. Throws SystemError when it cannot be reserved. Freed with the last reference.
  virtual std::shared_ptr<void> allocate_shared(std::size_t bytes) = 0;

  // Fails every pending and later operation, on every rank, with `reason`.
  virtual void abort(const std::string& reason) = 0;
  // Leaves the group: later calls here throw Aborted, peers that need this rank get PeerLost. Does not wait.
  virtual void close() = 0;
};

}  // namespace lockstep
