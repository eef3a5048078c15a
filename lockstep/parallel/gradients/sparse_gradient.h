// SparseGradient: the gradient of one parameter whose gradients are sparse, as of torch::nn::Embedding with
// sparse(true). It lies in no bucket. Only the rows that some rank touched travel.
//
//   SparseGradient gradient("table", weight);
//   gradient.reduce(group);              // or contribute_nothing_new() before it
//   gradient.settle(true);               // .grad is the average, coalesced
//
// Cost  reduce() blocks until all ranks have called it: two small exchanges and one of the rows.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep {

class SparseGradient {
 public:
  SparseGradient(std::string name, at::Tensor parameter);

  const std::string& name() const { return name_; }
  const at::Tensor& parameter() const { return parameter_; }
  bool has_gradient() const { return parameter_.grad().defined(); }

  // See GradientSlot.
  std::optional<std::string> change() const;
  std::optional<std::string> refusal() const;
  // Contributes the present .grad, even if another wrapper of the parameter changes it before reduce().
  void take_gradient() { taken_ = parameter_.grad(); }
  // This rank has no new gradient. It contributes the values that .grad had before, and .grad is left alone
  // until settle().
  void contribute_nothing_new() {
    nothing_new_ = true;
    taken_.reset();
  }
  // Returns the number of bytes contributed.
  std::size_t reduce(const ProcessGroup& group);
  void scale(double factor) { average_.mul_(factor); }  // between reduce() and settle()
  void settle(bool used_by_any_rank);

 private:
  std::string name_;
  at::Tensor parameter_;
  std::vector<std::int64_t> sizes_;
  at::ScalarType type_;
  at::Tensor taken_;
  at::Tensor average_;  // between reduce() and settle()
  bool nothing_new_ = false;
};

// Adds the names of the parameters that are weights of a torch::nn::Embedding or EmbeddingBag in `module`
// made with sparse(true).
void find_sparse(const torch::nn::Module& module, const NamedTensors& parameters,
                 std::vector<std::string>& names);

}  // namespace lockstep
