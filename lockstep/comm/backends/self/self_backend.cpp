#include "lockstep/comm/backends/self/self_backend.h"

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/group/fork_guard.h"
#include "lockstep/comm/group/group_failure.h"
#include "lockstep/comm/kernels/reduce_kernels.h"
#include "lockstep/comm/trace/flight_recorder.h"

namespace lockstep {
namespace {

class SelfBackend : public Backend {
 public:
  SelfBackend(std::string group_name, const std::shared_ptr<TraceMemory>& trace)
      : group_name_(std::move(group_name)), trace_(trace), recorder_(trace, {group_name_, "self"}) {}

  std::string_view name() const override { return "self"; }
  int rank() const override { return 0; }
  int size() const override { return 1; }
  const std::string& group_name() const override { return group_name_; }

  std::shared_ptr<WorkState> start(Request request) override {
    const std::lock_guard lock(mutex_);
    if (failure_) throw_failure(std::string(name_of(request.verb)), place(), *failure_);
    if (has_left_) throw_left(std::string(name_of(request.verb)), place());
    // A forked child may go on with its copy of the group, but it has no records.
    if (fork_guard_.is_fork()) {
      carry_out(request);
      return nullptr;
    }
    const auto ticket =
        recorder_.start(call_of(request), is_message(request.verb) ? 0 : ++sequence_, request.tag);
    carry_out(request);
    recorder_.finish(ticket, FlightRecorder::DONE);
    return nullptr;
  }

  std::shared_ptr<Backend> make_groups(const SplitRequest& split) override {
    return split.parts.empty() ? nullptr : std::make_shared<SelfBackend>(split.name, trace_);
  }

  std::shared_ptr<void> allocate_shared(std::size_t bytes) override {
    constexpr std::size_t ALIGNMENT = 64;
    const std::size_t size = (bytes / ALIGNMENT + 1) * ALIGNMENT;
    void* memory = std::aligned_alloc(ALIGNMENT, size);
    if (memory == nullptr) throw std::bad_alloc();
    std::memset(memory, 0, size);
    return {memory, std::free};
  }

  std::shared_ptr<void> make_common(std::size_t bytes, int /*holders*/) override {
    return allocate_shared(bytes);
  }
  std::optional<std::uint64_t> place_of(const void* memory) override {
    return reinterpret_cast<std::uintptr_t>(memory);
  }
  std::shared_ptr<std::byte> memory_of(int /*rank*/, std::uint64_t place, std::size_t /*bytes*/) override {
    return {std::shared_ptr<void>(),
            reinterpret_cast<std::byte*>(place)};  // NOLINT(performance-no-int-to-ptr)
  }

  void abort(const std::string& reason, ErrorCode code, int peer) override {
    const std::lock_guard lock(mutex_);
    if (!failure_ && !has_left_) failure_ = aborted(0, reason, code, peer);
    recorder_.leave();
  }
  std::shared_ptr<TraceMemory> trace() const override { return trace_; }
  void close() override {
    const std::lock_guard lock(mutex_);
    has_left_ = true;
    recorder_.leave();
  }

 private:
  static void carry_out(const Request& request) {
    const std::size_t bytes = request.count * size_of(request.dtype);
    if (bytes == 0) return;
    switch (request.verb) {
      case Verb::ALL_REDUCE:
      case Verb::REDUCE: reduce_alone(request, static_cast<const std::byte*>(request.input)); break;
      case Verb::REDUCE_SCATTER: reduce_alone(request, request.inputs[0].data()); break;
      case Verb::ALL_GATHER:
      case Verb::GATHER: std::memmove(request.outputs[0].data(), request.input, bytes); break;
      case Verb::SCATTER: std::memmove(request.output, request.inputs[0].data(), bytes); break;
      case Verb::ALL_TO_ALL: std::memmove(request.outputs[0].data(), request.inputs[0].data(), bytes); break;
      case Verb::BARRIER:
      case Verb::BROADCAST:
      case Verb::SEND:
      case Verb::RECV: break;
    }
  }

  // With one input, MIN and MAX leave a number as it is. The kernel runs all the same, as with several ranks:
  // a bool of 2 becomes 1, and AVG divides by one.
  static void reduce_alone(const Request& request, const std::byte* input) {
    auto* output = static_cast<std::byte*>(request.output);
    reduce(request.dtype, request.op, {&input, 1}, {&output, 1}, request.count);
  }

  GroupPlace place() const { return {.group = group_name_}; }

  const std::string group_name_;
  std::mutex mutex_;
  const std::shared_ptr<TraceMemory> trace_;
  const ForkGuard fork_guard_{};
  // guarded by mutex_
  std::optional<GroupFailure> failure_;
  bool has_left_ = false;
  FlightRecorder recorder_;
  std::uint64_t sequence_ = 0;
};

}  // namespace

ProcessGroup make_self_group(const std::string& group_name) {
  return ProcessGroup(std::make_shared<SelfBackend>(group_name, TraceMemory::create(0, 1)));
}

}  // namespace lockstep
