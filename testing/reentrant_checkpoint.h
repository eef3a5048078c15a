// Activation recomputation as a test needs it: keeps only the input of a block and runs the block again in
// backward, in a backward of its own inside the outer one. What the block uses beside its input is hidden
// from the outer graph.
//
//   h = testing::reentrant_checkpoint([&](const torch::Tensor& in) { return torch::tanh(in.mm(w)); }, h);
#pragma once

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <functional>
#include <utility>

namespace lockstep::testing {

using Block = std::function<at::Tensor(const at::Tensor&)>;

struct ReentrantCheckpoint : torch::autograd::Function<ReentrantCheckpoint> {
  struct Holder : torch::CustomClassHolder {
    explicit Holder(Block held) : block(std::move(held)) {}
    Block block;
  };

  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const Block& block) {
    context->save_for_backward({input});
    context->saved_data["block"] = c10::IValue::make_capsule(c10::make_intrusive<Holder>(block));
    return block(input);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto holder = context->saved_data["block"].toCapsule();
    const at::AutoGradMode grad_mode(true);
    const at::Tensor input = context->get_saved_variables()[0].detach().requires_grad_();
    const at::Tensor output = static_cast<const Holder&>(*holder).block(input);
    torch::autograd::backward({output}, {gradients[0]});
    return {input.grad(), at::Tensor()};
  }
};

inline at::Tensor reentrant_checkpoint(const Block& block, const at::Tensor& input) {
  return ReentrantCheckpoint::apply(input, block);
}

inline at::Tensor checkpointed_product(const at::Tensor& input, const at::Tensor& weight) {
  return reentrant_checkpoint([weight](const at::Tensor& in) { return in * weight; }, input);
}

}  // namespace lockstep::testing
