// Steps of parameters on a GPU by libtorch's fused kernels: all parameters with the same settings in a few
// launches, in one pass over memory. Tensor by tensor, a step of AdamW is some fifteen launches for each.
//
//   FusedSteps<FusedAdam> steps;
//   if (!steps.add(settings, {param, grad, mean, square})) ...   // tensor operations instead
//   steps.run();
//
// The formulas are those of the tensor operations; their roundings differ.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace lockstep::optim {

// Whether the kernels take them: dense tensors of one floating-point dtype, of one GPU, whose elements lie in
// the same order.
bool are_fusable(const std::vector<at::Tensor>& tensors);

// Tensors: parameter, gradient, mean, square; with amsgrad the largest square.
struct FusedAdam {
  bool decoupled = false;
  bool amsgrad = false;
  bool maximize = false;
  double lr = 0;
  double beta1 = 0;
  double beta2 = 0;
  double weight_decay = 0;
  double eps = 0;
  std::int64_t step = 0;  // the first is 1

  bool operator==(const FusedAdam&) const = default;
  void run(const std::vector<std::vector<at::Tensor>>& lists) const;
};

// Tensors: parameter, gradient; with momentum the buffer.
struct FusedSgd {
  bool nesterov = false;
  bool maximize = false;
  double lr = 0;
  double weight_decay = 0;
  double momentum = 0;
  double dampening = 0;

  bool operator==(const FusedSgd&) const = default;
  void run(const std::vector<std::vector<at::Tensor>>& lists) const;
};

template <typename Settings> class FusedSteps {
 public:
  // False: the kernels do not take them.
  bool add(const Settings& settings, const std::vector<at::Tensor>& tensors) {
    if (!are_fusable(tensors)) return false;
    if (tensors.front().numel() == 0) return true;
    std::vector<std::vector<at::Tensor>>& lists = lists_of(settings, tensors);
    for (std::size_t i = 0; i < tensors.size(); ++i) lists[i].push_back(tensors[i]);
    return true;
  }
  void run() const {
    for (const Group& group : groups_) group.settings.run(group.lists);
  }

 private:
  struct Group {
    Settings settings;
    std::vector<std::vector<at::Tensor>> lists;  // of parameters, of gradients, ...
  };

  std::vector<std::vector<at::Tensor>>& lists_of(const Settings& settings,
                                                 const std::vector<at::Tensor>& tensors) {
    for (Group& group : groups_) {
      const at::Tensor& first = group.lists.front().front();
      if (group.settings == settings && group.lists.size() == tensors.size() &&
          first.scalar_type() == tensors.front().scalar_type() && first.device() == tensors.front().device())
        return group.lists;
    }
    groups_.push_back({settings, std::vector<std::vector<at::Tensor>>(tensors.size())});
    return groups_.back().lists;
  }

  std::vector<Group> groups_;
};

}  // namespace lockstep::optim
