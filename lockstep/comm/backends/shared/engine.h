// SharedEngine: process groups over memory that all ranks map. One engine serves two backends: `shm` (ranks
// are processes) and `thread` (ranks are threads of one process, for tests and ThreadSanitizer).
//
// The engine makes an operation of each call (shared/operation.h) and keeps the unfinished operations
// (shared/pending_operations.h). The operations see only the Context (shared/context.h) of the engine.
//
// There is no progress thread. A rank works on its own and other ranks' operations inside the calls that it
// makes anyway. A call that posts an operation also takes this rank's fair share of slices of earlier
// operations. A wait does the rest. A busy rank stalls no other rank, because any rank may reduce any slice
// of an all_reduce once all have posted.
//
// The first rank that sees a failure records it in the shared header: a dead peer, a disagreement, a timeout
// or an abort. Every rank throws that failure from then on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/backend.h"
#include "lockstep/comm/backends/segment/rank_memory.h"
#include "lockstep/comm/backends/shared/context.h"
#include "lockstep/comm/backends/shared/operation.h"
#include "lockstep/comm/backends/shared/pending_operations.h"
#include "lockstep/comm/trace/flight_recorder.h"

namespace lockstep::shared {

class SharedEngine : public Backend, public Helped, public std::enable_shared_from_this<SharedEngine> {
 public:
  explicit SharedEngine(Membership membership);

  std::string_view name() const override { return context_.membership().backend_name; }
  int rank() const override { return context_.rank(); }
  int size() const override { return context_.size(); }
  const std::string& group_name() const override { return context_.membership().group_name; }
  std::shared_ptr<WorkState> start(Request request) override;
  std::shared_ptr<void> allocate_shared(std::size_t bytes) override;
  std::shared_ptr<void> make_common(std::size_t bytes, int holders) override;
  std::shared_ptr<void> hold_common(int maker, std::uint64_t place, std::size_t bytes) override;
  std::optional<std::uint64_t> place_of(const void* memory) override;
  std::shared_ptr<std::byte> memory_of(int rank, std::uint64_t place, std::size_t bytes) override;
  std::shared_ptr<Backend> make_groups(const SplitRequest& split) override;
  void abort(const std::string& reason, ErrorCode code, int peer) override;
  void close() override;
  void help() override { context_.membership().own->help_groups(); }
  void check_peers() override;
  std::shared_ptr<TraceMemory> trace() const override { return context_.membership().trace; }
  void help_this() override;

  Arena& arena() const { return context_.arena(); }
  // Fails the group for all ranks, and throws its first failure. `what` is the call that failed.
  [[noreturn]] void fail(const GroupFailure& failure, const std::string& what);

 private:
  void require_usable(std::string_view what);
  template <typename Verb>
  std::shared_ptr<Operation> begin(Request& request, bool posted, PendingOperations::Lock& lock,
                                   FlightRecorder::Ticket& record);
  std::shared_ptr<Operation> begin_collective(Request& request, PendingOperations::Lock& lock,
                                              FlightRecorder::Ticket& record);

  Context context_;
  PendingOperations pending_;
  const int spins_;  // how often a waiting call spins before it becomes a pending operation
};

}  // namespace lockstep::shared
