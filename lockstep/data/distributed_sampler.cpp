#include "lockstep/data/distributed_sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/SequenceNumber.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randperm.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/job/job.h"
#include "lockstep/job/unaveraged_steps.h"
#include "lockstep/job/virtual_ranks.h"

namespace lockstep {
namespace {

// The permutation of 0 ... size - 1, the same on every rank.
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
  if (!options.rank && options.pad && has_virtual_ranks()) {
    const std::vector<int> ranks = local_virtual_ranks();
    rank_ = current_virtual_rank().value_or(ranks.front());
    replicas_ = current_virtual_rank() ? 1 : ranks.size();
    if (options.num_replicas && *options.num_replicas != virtual_world_size()) {
      throw InvalidArgument(str("DistributedSampler: num_replicas is ", *options.num_replicas,
                                ", and this job has ", virtual_world_size(),
                                " virtual ranks; leave both or give rank, too"));
    }
  }
  DistributedSamplerState& state = shared_->state;
  state.dataset_size = dataset_size;
  state.num_replicas = options.num_replicas ? *options.num_replicas
                       : options.pad        ? virtual_world_size()
                                            : get_world_size();
  state.shuffle = options.shuffle;
  state.seed = options.seed;
  state.drop_last = options.drop_last;
  state.pad = options.pad;
  if (options.drop_last && !options.pad)
    throw InvalidArgument(
        "DistributedSampler: drop_last leaves items out and pad = false says that none is; set one of them");
  if (dataset_size < 0)
    throw InvalidArgument(str("DistributedSampler: dataset_size is ", dataset_size, ", expected 0 or more"));
  if (state.num_replicas < 1)
    throw InvalidArgument(
        str("DistributedSampler: num_replicas is ", state.num_replicas, ", expected 1 or more"));
  if (rank_ < 0 || rank_ >= state.num_replicas)
    throw InvalidArgument(
        str("DistributedSampler: rank is ", rank_, ", expected 0 to ", state.num_replicas - 1));
}

void DistributedSampler::set_epoch(std::int64_t epoch) {
  if (epoch < 0) throw InvalidArgument(str("DistributedSampler::set_epoch: ", epoch, " is negative"));
  shared_->epoch_was_set = true;
  DistributedSamplerState& state = shared_->state;
  if (epoch == state.epoch) return;
  state.epoch = epoch;
  state.position = 0;
  shared_->resumes = false;
}

std::int64_t DistributedSampler::size() const {
  const DistributedSamplerState& state = shared_->state;
  const std::int64_t whole = state.dataset_size / state.num_replicas;
  const std::int64_t rest = state.dataset_size % state.num_replicas;
  if (!state.pad) return rank_ < rest ? whole + 1 : whole;
  return rest == 0 || state.drop_last ? whole : whole + 1;
}

std::vector<std::int64_t> DistributedSampler::positions() const {
  std::vector<std::int64_t> mine;
  mine.reserve(static_cast<std::size_t>(size()) * replicas_);
  for (std::size_t replica = 0; replica < replicas_; ++replica) {
    std::int64_t place = rank_ + static_cast<std::int64_t>(replica);
    for (std::int64_t i = 0; i < size(); ++i, place += shared_->state.num_replicas) mine.push_back(place);
  }
  return mine;
}

std::vector<std::int64_t> DistributedSampler::indices() const {
  const at::Tensor all = order(shared_->state);
  const auto* const permutation = all.const_data_ptr<std::int64_t>();
  std::vector<std::int64_t> mine = positions();
  for (std::int64_t& place : mine)
    place = permutation[place % shared_->state.dataset_size];  // padding beyond the end repeats the head
  return mine;
}

void DistributedSampler::load_state(const DistributedSamplerState& state) {
  expect_same("dataset_size", state.dataset_size, shared_->state.dataset_size);
  expect_same("num_replicas", state.num_replicas, shared_->state.num_replicas);
  expect_same("shuffle", state.shuffle, shared_->state.shuffle);
  expect_same("seed", state.seed, shared_->state.seed);
  expect_same("drop_last", state.drop_last, shared_->state.drop_last);
  expect_same("pad", state.pad, shared_->state.pad);
  if (state.epoch < 0 || state.position < 0 || state.position > size())
    throw InvalidArgument(str("DistributedSampler::load_state: epoch ", state.epoch, ", position ",
                              state.position, "; expected an epoch from 0 and a position from 0 to ",
                              size()));
  shared_->state = state;
  shared_->resumes = true;
}

std::int64_t DistributedSampler::start_pass() {
  note_pass();
  Shared& shared = *shared_;
  if (!shared.resumes) shared.state.position = 0;
  shared.resumes = false;
  shared.epoch_was_set = false;
  shared.has_passed = true;
  shared.graphs = at::sequence_number::peek();
  return shared.state.position;
}

// Called before a pass begins. Logs the warning if the last two passes had the same order.
void DistributedSampler::note_pass() const {
  const Shared& shared = *shared_;
  const DistributedSamplerState& state = shared.state;
  if (!shared.has_passed || shared.resumes || !state.shuffle) return;
  if (state.num_replicas > 1) note_shuffled_epoch(at::sequence_number::peek() != shared.graphs);
  if (shared.epoch_was_set || state.position == 0) return;
  if (std::exchange(shared_->has_said, true)) return;
  log(LogLevel::WARNING,
      str("DistributedSampler: a second epoch in the same shuffled order, that of epoch ", state.epoch,
          ": call sampler.set_epoch(epoch) at the head of each epoch, or set shuffle = false where the order "
          "does not matter"));
}

void DistributedSampler::advance(std::int64_t count) {
  DistributedSamplerState& state = shared_->state;
  if (count < 0 || count > size() - state.position)
    throw InvalidArgument(
        str("DistributedSampler::advance: ", count, " from position ", state.position, " of ", size()));
  state.position += count;
}

void DistributedSampler::reset(std::optional<std::size_t> new_size) {
  if (new_size && static_cast<std::int64_t>(*new_size) != shared_->state.dataset_size)
    throw InvalidArgument(str("DistributedSampler::reset: a data set of ", *new_size, ", made for ",
                              shared_->state.dataset_size, "; make a new sampler"));
  start_pass();
  shared_->order = indices();
  shared_->turn = 0;
}

std::optional<DistributedSampler::BatchRequestType> DistributedSampler::next(std::size_t batch_size) {
  const std::size_t each = shared_->order.size() / replicas_;
  const auto position = static_cast<std::size_t>(shared_->state.position);
  const std::size_t count = std::min(batch_size, each - position);
  if (count == 0) return std::nullopt;
  const std::size_t begin = shared_->turn * each + position;
  shared_->turn = (shared_->turn + 1) % replicas_;
  if (shared_->turn == 0) advance(static_cast<std::int64_t>(count));
  const auto first = shared_->order.begin() + static_cast<std::ptrdiff_t>(begin);
  return BatchRequestType(first, first + static_cast<std::ptrdiff_t>(count));
}

}  // namespace lockstep
