// A group of `size` ranks of which only this one exists: the others are taken to contribute exactly what it
// does. For unit tests that look at what DDP starts, when, and what it makes of failures.
//
//   auto fake = std::make_shared<FakeBackend>(2);
//   fake->on_start = [](const Request& request) {
//     if (request.verb == Verb::ALL_REDUCE) throw PeerLost("gone", 1);
//   };
//   DistributedDataParallel ddp(net, {.process_group = ProcessGroup(fake)});
#pragma once

#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/backend.h"

namespace lockstep::testing {

class FakeBackend : public Backend {
 public:
  explicit FakeBackend(int size, int rank = 0) : size_(size), rank_(rank) {}

  std::function<void(const Request&)> on_start = [](const Request&) {};
  std::function<void()> on_wait = [] {};  // of an all_reduce
  std::vector<std::string> aborts;        // reasons, in order
  std::vector<Request> started;

  int count_of(Verb verb) const {
    int count = 0;
    for (const Request& request : started) count += request.verb == verb ? 1 : 0;
    return count;
  }

  std::string_view name() const override { return "fake"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::string& group_name() const override { return name_; }
  std::shared_ptr<WorkState> start(Request request) override {
    on_start(request);
    for (const auto& output : request.outputs) {
      if (request.input != nullptr) std::memcpy(output.data(), request.input, output.size());
    }
    const bool all_reduce = request.verb == Verb::ALL_REDUCE;
    const int source = request.verb == Verb::RECV ? request.root : -1;
    request.keep_alive.reset();
    started.push_back(std::move(request));
    return std::make_shared<Done>(
        all_reduce ? on_wait : [] {}, source);
  }
  std::shared_ptr<void> allocate_shared(std::size_t bytes) override {
    const std::size_t rounded = (bytes + 63) / 64 * 64;
    void* memory = std::aligned_alloc(64, rounded == 0 ? 64 : rounded);
    std::memset(memory, 0, rounded);
    return std::shared_ptr<void>(memory, std::free);
  }
  std::shared_ptr<Backend> make_groups(const SplitRequest&) override {
    throw InternalError("the fake backend has no parts");
  }
  void abort(const std::string& reason, ErrorCode, int) override { aborts.push_back(reason); }
  void close() override {}

 private:
  struct Done : WorkState {
    Done(std::function<void()> callback, int peer) : on_wait(std::move(callback)), source(peer) {}
    void wait(std::optional<std::chrono::nanoseconds>) override { on_wait(); }
    bool poll() override { return true; }
    std::exception_ptr exception() const override { return nullptr; }
    int source_rank() const override { return source; }
    std::function<void()> on_wait;
    int source;
  };
  std::string name_ = "fake group";
  int size_;
  int rank_;
};

}  // namespace lockstep::testing
