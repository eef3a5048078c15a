// GroupWork: a started call, as torch's programs hold it. It waits for one or more works of the core.
//
//   auto work = c10::make_intrusive<GroupWork>(call, std::vector{all_reduce(tensor, op, group, true)});
//   work->wait();                        // or work->getFuture()->wait()
//
//   PENDING --claimed by wait(), isCompleted() or the completion thread--> CLAIMED --> complete
//      ^                                                                      |
//      +---------------- isCompleted() found it still running ----------------+
//
// One thread at a time asks the core for a work. Other threads sleep until the claim ends.
//
// Fails       wait() and the future have the error of the call (failure.h).
// Threads     any.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/compat/c10d/completion.h"

namespace lockstep::compat::torch_backend {

struct GroupCall {
  c10d::OpType type = c10d::OpType::UNKNOWN;
  const char* title = nullptr;  // in a profile; lives as long as the process
  std::uint64_t sequence = 0;
  std::chrono::milliseconds timeout = {};  // of this call; 0: the group's
  std::chrono::milliseconds usual = {};    // the group's, for messages
};

class GroupWork : public c10d::Work {
 public:
  using CoreWorks = std::vector<lockstep::Work>;
  using Tensors = std::vector<at::Tensor>;

  // `inputs` are those that a profile shows; nullopt without one.
  GroupWork(const ProcessGroup& group, const GroupCall& call, CoreWorks works,
            std::shared_ptr<Completion> completion, const std::optional<Tensors>& inputs);
  // The call is over. Called by the thread that made it.
  void finish_now() { finish(); }

  bool isCompleted() override;
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override { wait(kNoTimeout); }
  int sourceRank() const override;
  Tensors result() override;
  std::uint64_t getSequencenumber() const override { return call_.sequence; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

  // Waits, then completes the future. Called by the completion thread.
  void complete_future();

 private:
  bool claim();
  void end(std::chrono::milliseconds timeout);
  void wait_for_core(std::chrono::milliseconds timeout);

  const ProcessGroup group_;
  const GroupCall call_;
  CoreWorks works_;
  const std::shared_ptr<Completion> completion_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // guarded by the base's mutex, as is:
  bool is_claimed_ = false;
};

}  // namespace lockstep::compat::torch_backend
