#include "lockstep/parallel/virtual_ranks/random_streams.h"

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>

namespace lockstep {
namespace {

void set_default_state(const at::Tensor& state) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

}  // namespace

at::Tensor RandomStreams::default_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void RandomStreams::seed(int virtual_rank, std::uint64_t seed) {
  origin_ = Origin::SEEDED;
  streams_[virtual_rank] = at::Generator(at::detail::createCPUGenerator(seed)).get_state();
}

void RandomStreams::begin(int virtual_rank) {
  if (!has(virtual_rank)) streams_[virtual_rank] = default_state();
}

void RandomStreams::enter(int virtual_rank) {
  outside_ = default_state();
  set_default_state(streams_.at(virtual_rank));
}

void RandomStreams::leave(int virtual_rank) {
  streams_[virtual_rank] = default_state();
  set_default_state(outside_);
}

void RandomStreams::load(int virtual_rank, const at::Tensor& state) {
  origin_ = Origin::LOADED;
  streams_[virtual_rank] = state.clone();
}

void RandomStreams::clear() {
  origin_ = Origin::COPIED;
  streams_.clear();
}

}  // namespace lockstep
