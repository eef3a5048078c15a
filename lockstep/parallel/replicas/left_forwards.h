// LeftForwards: counts the forwards of this rank that an exception left behind, so that no backward will ever
// come to its end behind them. A rank that catches such an exception and goes on with its next batch is one
// step behind its peers.
//
//   const LeftForwards::Attempt attempt(left);      // counts a forward that throws
//   auto outputs = module->forward(batch);
//   attempt.watch(tensors_of(outputs));             // and one whose outputs are destroyed by an exception
//                                                   // before the end of their backward
//
// Not seen    An exception before forward. Outputs that live on outside of the block that the exception left,
//             that are not part of a graph, or that cannot be searched (forward_outputs.h). A step that is
//             skipped without an exception.
// Cost        a small object per output, held by its node in the graph.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace lockstep {

class LeftForwards {
 public:
  class Attempt {
   public:
    explicit Attempt(const LeftForwards& left);
    ~Attempt();
    Attempt(const Attempt&) = delete;
    Attempt& operator=(const Attempt&) = delete;
    void watch(const std::vector<at::Tensor>& outputs) const;

   private:
    const LeftForwards& left_;
    const int exceptions_;  // number in flight when it began
  };

  std::int32_t count() const { return *count_; }

 private:
  std::shared_ptr<std::atomic<std::int32_t>> count_ = std::make_shared<std::atomic<std::int32_t>>(0);
};

}  // namespace lockstep
