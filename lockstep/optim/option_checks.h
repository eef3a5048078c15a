// Checks of options, with one wording: "AdamW: lr is -1 and must not be negative".
#pragma once

#include <tuple>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::optim {

inline void expect_not_negative(const char* optimizer, const char* option, double value) {
  if (!(value >= 0))
    throw InvalidArgument(str(optimizer, ": ", option, " is ", value, " and must not be negative"));
}

inline void expect_beta(const char* optimizer, const char* option, double value) {
  if (!(value >= 0 && value < 1))
    throw InvalidArgument(str(optimizer, ": ", option, " is ", value, " and must be in [0, 1)"));
}

// Those of an optimiser of the Adam family.
template <typename Options> void expect_adam_options(const char* optimizer, const Options& options) {
  expect_not_negative(optimizer, "lr", options.lr());
  expect_not_negative(optimizer, "eps", options.eps());
  expect_not_negative(optimizer, "weight_decay", options.weight_decay());
  expect_beta(optimizer, "beta1", std::get<0>(options.betas()));
  expect_beta(optimizer, "beta2", std::get<1>(options.betas()));
}

}  // namespace lockstep::optim
