#include "lockstep/tensor/random_state.h"

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/util/Exception.h>

#include <mutex>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

at::Generator generator_of(const at::Device& device) { return at::globalContext().defaultGenerator(device); }

at::Tensor state_of(const at::Device& device) {
  at::Generator generator = generator_of(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void expect_state(const char* function, const at::Device& device, const at::Tensor& state) {
  const at::Tensor own = state_of(device);
  if (!state.defined())
    throw InvalidArgument(
        lockstep::str(function, ": the state of device ", device.str(), " is an undefined tensor"));
  if (state.scalar_type() == at::kByte && state.sizes() == own.sizes() && state.is_cpu()) return;
  throw InvalidArgument(lockstep::str(function, ": the state of device ", device.str(), " is ", own.numel(),
                                      " bytes, a uint8 tensor in CPU memory; this one is ",
                                      toString(state.scalar_type()), " of shape ", state.sizes(), " on ",
                                      state.device().str()));
}

void set_state(const char* function, const at::Device& device, const at::Tensor& state) {
  at::Generator generator = generator_of(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  try {
    generator.set_state(state.contiguous());
  } catch (const c10::Error& error) {  // the bytes are not a state of the engine
    throw InvalidArgument(lockstep::str(function, ": ", error.what_without_backtrace()));
  }
}

std::size_t cuda_devices() {
  return at::hasCUDA() ? static_cast<std::size_t>(at::detail::getCUDAHooks().deviceCount()) : 0;
}

at::Device cuda_device(std::size_t index) { return {at::kCUDA, static_cast<at::DeviceIndex>(index)}; }

}  // namespace

at::Tensor get_rng_state() { return state_of(at::kCPU); }

void set_rng_state(const at::Tensor& state) {
  expect_state("set_rng_state", at::kCPU, state);
  set_state("set_rng_state", at::kCPU, state);
}

std::vector<at::Tensor> get_rng_state_all() {
  std::vector<at::Tensor> states;
  for (std::size_t i = 0; i < cuda_devices(); ++i) states.push_back(state_of(cuda_device(i)));
  return states;
}

void set_rng_state_all(const std::vector<at::Tensor>& states) {
  if (states.size() != cuda_devices())
    throw InvalidArgument(lockstep::str("set_rng_state_all: there are ", states.size(), " states and ",
                                        cuda_devices(), " CUDA devices"));
  for (std::size_t i = 0; i < states.size(); ++i)
    expect_state("set_rng_state_all", cuda_device(i), states[i]);
  for (std::size_t i = 0; i < states.size(); ++i) set_state("set_rng_state_all", cuda_device(i), states[i]);
}

}  // namespace lockstep
