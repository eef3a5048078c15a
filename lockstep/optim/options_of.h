// OptionsOf<SGDOptions>: what the options of an optimiser of this room have in common, so that they are what
// libtorch expects of a torch::optim::OptimizerOptions: they can be cloned, written to archives under the
// names that libtorch uses, and their learning rate read and set without knowing their type. An options class
// lists its fields once:
//
//   template <typename Self, typename Visit> static void fields(Self& self, const Visit& visit) {
//     visit("lr", self.lr_);
//   }
//
// Definitions are in options_fields.h, for the sources of this room.
#pragma once

#include <torch/optim/optimizer.h>

#include <memory>
#include <string>

#include "lockstep/tensor/named_tensors.h"

namespace lockstep::optim {

template <typename Derived> class OptionsOf : public torch::optim::OptimizerOptions {
 public:
  std::unique_ptr<torch::optim::OptimizerOptions> clone() const override;
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
  double get_lr() const override;
  void set_lr(double lr) override;

  // As libtorch merges the options of a parameter group: a field that has the value it has in `Derived()`
  // counts as not set and becomes that of `defaults`.
  void inherit(const Derived& defaults);
};

}  // namespace lockstep::optim
