#include "lockstep/data/distributed_sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randperm.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/job/job.h"

namespace lockstep {
namespace {

// Every rank's permutation of 0 ... size - 1.
at::Tensor order(const DistributedSamplerState& state) {
  if (!state.shuffle) return at::arange(state.dataset_size, at::kLong);
  const at::Generator generator =
      at::detail::createCPUGenerator(state.seed + static_cast<std::uint64_t>(state.epoch));
  return at::randperm(state.dataset_size, generator, at::TensorOptions(at::kLong));
}

template <typename Value> void expect_same(const char* what, const Value& saved, const Value& here) {
  if (saved != here) {
    throw InvalidArgument(str("DistributedSampler::load_state: the state was saved with ", what, ' ', saved,
                              ", this sampler has ", here,
                              "; its order would be another one, so make the sampler as it was"));
  }
}

}  // namespace

DistributedSampler::DistributedSampler(std::int64_t dataset_size, const DistributedSamplerOptions& options)
    : rank_(options.rank ? *options.rank : get_rank()) {
  state_.dataset_size = dataset_size;
  state_.num_replicas = options.num_replicas ? *options.num_replicas : get_world_size();
  state_.shuffle = options.shuffle;
  state_.seed = options.seed;
  state_.drop_last = options.drop_last;
  if (dataset_size < 0)
    throw InvalidArgument(str("DistributedSampler: dataset_size is ", dataset_size, ", expected 0 or more"));
  if (state_.num_replicas < 1)
    throw InvalidArgument(
        str("DistributedSampler: num_replicas is ", state_.num_replicas, ", expected 1 or more"));
  if (rank_ < 0 || rank_ >= state_.num_replicas)
    throw InvalidArgument(
        str("DistributedSampler: rank is ", rank_, ", expected 0 to ", state_.num_replicas - 1));
}

void DistributedSampler::set_epoch(std::int64_t epoch) {
  if (epoch < 0) throw InvalidArgument(str("DistributedSampler::set_epoch: ", epoch, " is negative"));
  if (epoch == state_.epoch) return;
  state_.epoch = epoch;
  state_.position = 0;
  resumes_ = false;
}

std::int64_t DistributedSampler::size() const {
  const std::int64_t whole = state_.dataset_size / state_.num_replicas;
  const bool divides = state_.dataset_size % state_.num_replicas == 0;
  return divides || state_.drop_last ? whole : whole + 1;
}

std::vector<std::int64_t> DistributedSampler::indices() const {
  const at::Tensor all = order(state_);
  const auto* const permutation = all.const_data_ptr<std::int64_t>();
  std::vector<std::int64_t> mine(static_cast<std::size_t>(size()));
  std::int64_t place = rank_;
  for (std::int64_t& index : mine) {
    index =
        permutation[place % state_.dataset_size];  // past the end: the padding, which starts over at the head
    place += state_.num_replicas;
  }
  return mine;
}

void DistributedSampler::load_state(const DistributedSamplerState& state) {
  expect_same("dataset_size", state.dataset_size, state_.dataset_size);
  expect_same("num_replicas", state.num_replicas, state_.num_replicas);
  expect_same("shuffle", state.shuffle, state_.shuffle);
  expect_same("seed", state.seed, state_.seed);
  expect_same("drop_last", state.drop_last, state_.drop_last);
  if (state.epoch < 0 || state.position < 0 || state.position > size())
    throw InvalidArgument(str("DistributedSampler::load_state: epoch ", state.epoch, ", position ",
                              state.position, "; expected an epoch from 0 and a position from 0 to ",
                              size()));
  state_ = state;
  resumes_ = true;
}

std::int64_t DistributedSampler::start_pass() {
  if (!resumes_) state_.position = 0;
  resumes_ = false;
  return state_.position;
}

void DistributedSampler::advance(std::int64_t count) {
  if (count < 0 || count > size() - state_.position)
    throw InvalidArgument(
        str("DistributedSampler::advance: ", count, " from position ", state_.position, " of ", size()));
  state_.position += count;
}

}  // namespace lockstep
