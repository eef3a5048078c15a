// OptionsOf<SGDOptions>: base class of the options of this room's optimisers. It implements what libtorch
// expects of a torch::optim::OptimizerOptions. Options can be cloned and written to archives under libtorch's
// names. Their learning rate can be read and set without knowing their type. An options class lists its
// fields once:
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

  // Merges as libtorch merges the options of a parameter group: a field with the value that it has in
  // `Derived()` counts as not set, and takes that of `defaults`.
  void inherit(const Derived& defaults);
};

}  // namespace lockstep::optim
