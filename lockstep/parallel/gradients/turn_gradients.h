// TurnGradients: the .grad of each virtual rank of this process, whose turns follow one another on one model.
// Every virtual rank begins with the .grad that a process of its own would have.
//
//   TurnGradients gradients(parameters);
//   if (const auto mistake = gradients.begin_round()) refuse(*mistake);
//   gradients.begin_turn(0);
//   ...                                      // backward() under no_sync
//   gradients.keep(0, used);                 // the turn ends, and its gradients were not averaged
//   gradients.begin_turn(1);                 // .grad is as it was before the first turn
//
// Round   One loop over the virtual ranks. Every virtual rank begins with the .grad that the round began
//         with: none, zeros, or an average to add to.
// Kept    Gradients under no_sync are kept for the next round of the same virtual rank. zero_grad() between
//         the rounds drops those of all virtual ranks. Each virtual rank of the process then holds gradients
//         of its own.
// Tensor  An existing .grad stays the tensor it is; turns copy values into it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

class TurnGradients {
 public:
  explicit TurnGradients(std::vector<at::Tensor> parameters) : parameters_(std::move(parameters)) {}

  // Returns the fault of gradients that are kept, as a sentence.
  std::optional<std::string> begin_round();
  // Returns which parameters got gradients that were kept; empty if nothing was kept.
  std::vector<bool> begin_turn(int virtual_rank);
  void keep(int virtual_rank, std::vector<bool> used);
  void end_round();
  // Forgets all kept gradients.
  void drop() { kept_.clear(); }

 private:
  struct Start {
    at::Tensor tensor;  // .grad itself
    at::Tensor value;
  };
  struct Kept {
    std::vector<at::Tensor> values;
    std::vector<bool> used;
  };
  struct Seen {  // how the last turn left .grad
    const void* tensor = nullptr;
    std::uint32_t version = 0;
    bool operator==(const Seen&) const = default;
  };
  std::vector<Seen> seen_now() const;

  const std::vector<at::Tensor> parameters_;
  std::vector<Start> starts_;
  std::map<int, Kept> kept_;  // by virtual rank
  std::vector<Seen> seen_;
};

}  // namespace lockstep
