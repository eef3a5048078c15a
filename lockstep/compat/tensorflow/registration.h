// Telling TensorFlow of operators and their kernels.
//
//   define({.name = "LockstepBroadcast", .attributes = {"T: {float, double}"}, .inputs = {"tensor: T"},
//           .outputs = {"result: T"}, .is_stateful = true, .keeps_shapes = true});
//   add_kernel(api().TF_NewKernelBuilder(NAME, "CPU", create, compute, destroy), NAME);
//
// Throws      Failure with TensorFlow's text.
#pragma once

#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/compat/tensorflow/tensors.h"

namespace lockstep::compat::tensorflow {

struct Definition {
  std::string name = {};
  std::vector<std::string> attributes = {};
  std::vector<std::string> inputs = {};
  std::vector<std::string> outputs = {};
  bool is_stateful = false;
  bool keeps_shapes = false;  // output i has the shape of input i; else Python says what is known of it
};

void define(const Definition& definition);
// Takes the builder.
void add_kernel(TF_KernelBuilder* builder, const std::string& name);

// No exception passes the boundary to TensorFlow. `context` is a kernel's or a construction's. False: it
// failed.
template <typename Context, typename Body> bool guarded(Context* context, Body&& body) noexcept {
  try {
    std::forward<Body>(body)();
    return true;
  } catch (const Failure& failure) {
    fail(context, failure);
  } catch (const std::exception& error) {
    fail(context, Failure{INTERNAL, error.what()});
  }
  return false;
}

}  // namespace lockstep::compat::tensorflow
