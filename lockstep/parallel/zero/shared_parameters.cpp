#include "lockstep/parallel/zero/shared_parameters.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "lockstep/base/round_up.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/all_gather.h"
#include "lockstep/comm/collectives/barrier.h"
#include "lockstep/comm/collectives/broadcast.h"
#include "lockstep/comm/collectives/common_memory.h"
#include "lockstep/parallel/zero/common_file.h"
#include "lockstep/parallel/zero/operator_watch.h"
#include "lockstep/parallel/zero/unit_plan.h"
#include "lockstep/parallel/zero/zero_wrapper.h"
#include "lockstep/tensor/caching_allocator.h"
#include "lockstep/tensor/meta_init.h"

namespace lockstep {
namespace {

constexpr std::size_t ALIGNMENT = 64;  // of each parameter: a cache line, and what vector instructions want

// A tensor over this memory that holds it. Each has a storage of its own: saving one saves its bytes alone.
at::Tensor tensor_over(const std::shared_ptr<void>& memory, std::byte* data, at::IntArrayRef sizes,
                       const at::TensorOptions& options) {
  return at::from_blob(
      data, sizes, [memory](void*) {}, options);
}

}  // namespace

SharedParameters::SharedParameters(NamedTensors parameters, ProcessGroup group, const ShardPlan& plan,
                                   const SharedParametersOptions& options, std::size_t unit_bytes)
    : parameters_(std::move(parameters)), group_(std::move(group)) {
  if (options.offload)
    masters_ = MasterWeights(optim::StateMemory(std::make_shared<FileMemory>(options.offload->folder)));
  lay_out();
  reserve(plan, options.offload, unit_bytes);
  move_in();
  make_shards();
  if (copies_ == Copies::ONE) {
    comm::barrier(group_).wait();  // behind what rank 0 has copied in
  } else {
    comm::broadcast(group_, at(0), bytes_, DType::UINT8, GroupRank{0}).wait();
  }
  if (options.master_weights) masters_.keep(shards_);
  if (units_ != nullptr) units_->forget();
  count_versions();
  empty_cache();  // what the parameters had before
}

void SharedParameters::lay_out() {
  bytes_ = ALIGNMENT * static_cast<std::size_t>(group_.size());  // the marks
  for (const auto& [name, parameter] : parameters_) {
    places_.push_back({.begin = bytes_});
    bytes_ = round_up(bytes_ + parameter.nbytes(), ALIGNMENT);
  }
}

void SharedParameters::reserve(const ShardPlan& plan, const std::optional<OffloadOptions>& offload,
                               std::size_t unit_bytes) {
  const bool in_file = offload && offload->parameters;
  const std::size_t in_memory =
      in_file ? ALIGNMENT : bytes_;  // tells all the same whether there is common memory
  memory_ = comm::allocate_common(group_, in_memory);
  if (memory_ == nullptr && unit_bytes > 0) return reserve_units(plan, unit_bytes);
  find_ranges(plan);
  if (memory_ == nullptr) {
    copies_ = Copies::OWN;
    if (in_file) {
      const auto file = std::make_shared<FileMemory>(offload->folder);
      memory_ = {file->allocate(bytes_), [file](void*) {}};
    } else {
      memory_ = group_.allocate_shared(bytes_);
    }
  } else if (in_file) {
    memory_ = zero::common_file(group_, offload->folder, bytes_);
  }
}

// Tensors over the memory hold what gathers them.
void SharedParameters::reserve_units(const ShardPlan& plan, std::size_t unit_bytes) {
  struct Watched {
    GatheredUnits units;
    OperatorWatch watch{units};
  };
  copies_ = Copies::PARTS;
  std::vector<std::size_t> bytes;
  for (const auto& [name, parameter] : parameters_) bytes.push_back(parameter.nbytes());
  UnitPlan units =
      unit_plan(bytes, unit_bytes, /*begin=*/ALIGNMENT * static_cast<std::size_t>(group_.size()));
  bytes_ = units.bytes;
  for (std::size_t i = 0; i < places_.size(); ++i) places_[i].begin = units.begins[i];
  find_ranges(plan);
  std::vector<std::string> names;
  for (const UnitSpec& unit : units.units) names.push_back(parameters_[unit.first].first);
  const auto held = std::shared_ptr<Watched>(
      new Watched{.units = GatheredUnits(std::move(units), ranges_, group_, std::move(names))});
  units_ = &held->units;
  memory_ = std::shared_ptr<void>(held, units_->data());
}

// Rank 0's values count. Those of a parameter from meta_init() are computed in its place.
void SharedParameters::move_in() {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor parameter = parameters_[i].second;
    const at::Tensor place = tensor_over(memory_, at(places_[i].begin), parameter.sizes(),
                                         parameter.options().requires_grad(false));
    if (group_.rank() == 0) copy_values(place, parameter);
    parameter.set_data(place);
  }
}

void SharedParameters::find_ranges(const ShardPlan& plan) {
  ranges_.resize(static_cast<std::size_t>(plan.ranks));
  offsets_.resize(parameters_.size());
  counts_.resize(parameters_.size());
  for (const ShardSpec& shard : plan.shards) {
    const std::size_t item = parameters_[shard.parameter].second.element_size();
    ByteRange& range = ranges_[static_cast<std::size_t>(shard.rank)];
    const std::size_t begin = places_[shard.parameter].begin + shard.offset * item;
    if (range.end == 0) range.begin = begin;
    range.end = begin + shard.count * item;
    if (shard.rank != group_.rank()) continue;
    offsets_[shard.parameter] = shard.offset;
    counts_[shard.parameter] = shard.count;
  }
}

void SharedParameters::make_shards() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& parameter = parameters_[i].second;
    const auto count = static_cast<std::int64_t>(counts_[i]);
    shards_.push_back(tensor_over(memory_, at(places_[i].begin + offsets_[i] * parameter.element_size()),
                                  {count}, parameter.options().requires_grad(false))
                          .requires_grad_(true));
    if (units_ != nullptr) units_->ignore(shards_.back().storage().unsafeGetStorageImpl());
  }
}

std::atomic<std::uint64_t>& SharedParameters::mark_of(int rank) const {
  return *reinterpret_cast<std::atomic<std::uint64_t>*>(at(ALIGNMENT * static_cast<std::size_t>(rank)));
}

// The fence stands between the mark and the look at the group's failure with which a meeting begins.
void SharedParameters::mark_step(std::uint64_t number) {
  mark_of(group_.rank()).store(number, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

bool SharedParameters::is_untouched(std::uint64_t number) const {
  if (copies_ != Copies::ONE) return true;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (int rank = 0; rank < group_.size(); ++rank) {
    if (mark_of(rank).load(std::memory_order_relaxed) != number) return true;
  }
  return false;
}

void SharedParameters::collect() {
  if (copies_ == Copies::OWN && group_.size() > 1) {
    std::vector<std::span<std::byte>> parts;
    for (const ByteRange& range : ranges_) parts.emplace_back(at(range.begin), range.end - range.begin);
    const auto mine = parts[static_cast<std::size_t>(group_.rank())];
    comm::all_gather(group_, mine.data(), mine.size(), DType::UINT8, std::move(parts)).wait();
  }
  if (units_ != nullptr) units_->forget();
  count_versions();
}

void SharedParameters::write(const std::function<void()>& write) {
  if (units_ != nullptr) units_->hold_all();
  comm::barrier(group_).wait();  // nobody reads the old values any more
  if (group_.rank() == 0) write();
  if (copies_ == Copies::ONE) {
    comm::barrier(group_).wait();
  } else {
    comm::broadcast(group_, at(0), bytes_, DType::UINT8, GroupRank{0}).wait();
  }
  if (units_ != nullptr) units_->forget();
  mark_written();
}

void SharedParameters::read(const std::function<void()>& read) {
  if (units_ != nullptr) units_->hold_all();
  read();
  if (units_ != nullptr) units_->forget();
}

void SharedParameters::rethrow() {
  if (units_ != nullptr) units_->rethrow();
}

void SharedParameters::mark_written() {
  masters_.follow();
  count_versions();
}

// A graph that saved a parameter is refused by autograd from now on: its values are others.
void SharedParameters::count_versions() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& parameter = parameters_[i].second;
    parameter.unsafeGetTensorImpl()->bump_version();
    places_[i].version = parameter._version();
  }
}

std::optional<std::string> SharedParameters::change() const {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, parameter] = parameters_[i];
    if (parameter.const_data_ptr() != at(places_[i].begin)) {
      return lockstep::str(
          "parameter ", in_quotes(name),
          " has left the memory that the ranks share: torch::load(), to(), set_data() and the "
          "like replace a parameter's memory. Load and convert a model before it is wrapped, or "
          "copy values into it within write_parameters()");
    }
    if (group_.size() > 1 && parameter._version() != places_[i].version) {
      return lockstep::str("parameter ", in_quotes(name), " was written to in place, by every rank on ",
                           copies_ == Copies::ONE ? "one" : "its",
                           " copy. Write within write_parameters(), which lets one rank do it for all; a "
                           "checkpoint loads into the wrapper: state.add(name, model)");
    }
  }
  return std::nullopt;
}

}  // namespace lockstep
