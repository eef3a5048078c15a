#include "lockstep/parallel/zero/shared_parameters.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <numeric>
#include <span>
#include <utility>

#include "lockstep/base/fail_point.h"
#include "lockstep/base/round_up.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/all_gather.h"
#include "lockstep/comm/collectives/barrier.h"
#include "lockstep/comm/collectives/broadcast.h"
#include "lockstep/comm/collectives/common_memory.h"
#include "lockstep/parallel/zero/common_file.h"
#include "lockstep/parallel/zero/gathered_units.h"
#include "lockstep/parallel/zero/operator_watch.h"
#include "lockstep/parallel/zero/zero_wrapper.h"
#include "lockstep/tensor/caching_allocator.h"
#include "lockstep/tensor/collectives.h"
#include "lockstep/tensor/meta_init.h"
#include "lockstep/tensor/parted_memory.h"

namespace lockstep {
namespace {

constexpr std::size_t PLACE_ALIGNMENT =
    64;  // of each parameter: a cache line, and what vector instructions want

}  // namespace

SharedParameters::SharedParameters(NamedTensors parameters, ProcessGroup group, const ShardPlan& plan,
                                   const SharedParametersOptions& options,
                                   const std::optional<UnitOptions>& units)
    : parameters_(std::move(parameters)),
      group_(std::move(group)),
      device_(options.device),
      places_(parameters_.size()) {
  if (options.offload && !options.offload->folder.empty())
    masters_ = MasterWeights(optim::StateMemory(std::make_shared<FileMemory>(options.offload->folder)));
  try {
    reserve(plan, options.offload, units);
    fill();
    make_shards();
    masters_.keep(shards_, {.widens = options.master_weights, .on_host = options.offload && are_on_device()});
  } catch (...) {
    abandon();
    throw;
  }
  count_versions();
  empty_cache();  // what the parameters had before
}

std::size_t SharedParameters::bytes() const { return units_ != nullptr ? units_->bytes() : bytes_; }

bool SharedParameters::is_parted(std::size_t parameter) const {
  return units_ != nullptr && units_->plan().is_gathered(parameter);
}

void SharedParameters::lay_out() {
  bytes_ = PLACE_ALIGNMENT * static_cast<std::size_t>(group_.size());  // the marks
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    places_[i].begin = bytes_;
    bytes_ = round_up(bytes_ + parameters_[i].second.nbytes(), PLACE_ALIGNMENT);
  }
}

void SharedParameters::reserve(const ShardPlan& plan, const std::optional<OffloadOptions>& offload,
                               const std::optional<UnitOptions>& units) {
  lay_out();
  UnitPlaces where{.units = device_, .part = device_};
  if (!device_.is_cpu()) {
    if (offload && offload->parameters) {
      where.part = at::kCPU;
      if (!offload->folder.empty()) where.file = std::make_shared<FileMemory>(offload->folder);
    }
    return units ? reserve_units(plan, *units, where) : reserve_on_device(plan);
  }
  const bool in_file = offload && offload->parameters;
  const std::size_t in_memory =
      in_file ? PLACE_ALIGNMENT : bytes_;  // tells all the same whether there is common memory
  memory_ = comm::allocate_common(group_, in_memory);
  if (memory_ == nullptr && units && !in_file) return reserve_units(plan, *units, where);
  ranges_ = find_parts(plan, bytes_).whole;
  if (memory_ == nullptr && (machines_ = MachineGroups::make(group_)) != nullptr) {
    copies_ = Copies::MACHINE;
    memory_ = comm::allocate_common(machines_->machine(), in_memory);
  }
  if (memory_ == nullptr) {
    copies_ = Copies::OWN;
    if (in_file) {
      const auto file = std::make_shared<FileMemory>(offload->folder);
      memory_ = {file->allocate(bytes_), [file](void*) {}};
    } else {
      memory_ = group_.allocate_shared(bytes_);
    }
  } else if (in_file) {
    memory_ = zero::common_file(machines_ ? machines_->machine() : group_, offload->folder, bytes_);
  }
}

void SharedParameters::reserve_on_device(const ShardPlan& plan) {
  copies_ = Copies::OWN;
  ranges_ = find_parts(plan, bytes_).whole;
  on_device_ = zeros_on_device(bytes_);
  memory_ = {on_device_.mutable_data_ptr(), [held = on_device_](void*) {}};
}

at::Tensor SharedParameters::zeros_on_device(std::size_t bytes) const {
  return at::zeros({static_cast<std::int64_t>(bytes)}, at::TensorOptions(device_).dtype(at::kByte));
}

// Tensors over the memory hold what gathers them.
void SharedParameters::reserve_units(const ShardPlan& plan, const UnitOptions& options, UnitPlaces where) {
  struct Watched {
    GatheredUnits units;
    OperatorWatch watch{units};
    PartedMemory parted{
        [this](const at::Tensor& tensor) { return units.lacks(*tensor.storage().unsafeGetStorageImpl()); }};
  };
  copies_ = Copies::PARTS;
  if (device_.is_cpu()) machines_ = MachineGroups::make(group_);
  std::vector<UnitParameter> sizes;
  for (const auto& [name, parameter] : parameters_)
    sizes.push_back({.elements = static_cast<std::size_t>(parameter.numel()), .bytes = parameter.nbytes()});
  UnitPlan units =
      unit_plan(sizes, options, /*begin=*/PLACE_ALIGNMENT * static_cast<std::size_t>(group_.size()));
  bytes_ = units.bytes;
  for (std::size_t i = 0; i < places_.size(); ++i) places_[i].begin = units.begins[i];
  Ranges ranges = find_parts(plan, units.resident_end);
  ranges_ = std::move(ranges.whole);
  if (!device_.is_cpu()) on_device_ = zeros_on_device(units.resident_end);
  const std::shared_ptr<Watched> held(new Watched{{parameters_, std::move(units), std::move(ranges.parted),
                                                   group_, machines_, options, std::move(where)}});
  units_ = &held->units;
  void* const begin = device_.is_cpu() ? units_->resident() : on_device_.mutable_data_ptr();
  memory_ = {begin, [held, on_device = on_device_](void*) {}};
}

// Rank 0's values count. Those of a parameter from meta_init() are computed in its place.
void SharedParameters::move_in(std::size_t parameter) {
  const at::NoGradGuard no_grad;
  at::Tensor tensor = parameters_[parameter].second;
  const at::Tensor place = is_parted(parameter)
                               ? units_->memory().place(parameter, tensor, memory_)
                               : tensor_over(memory_, at(places_[parameter].begin), tensor.sizes(),
                                             tensor.options().device(device_).requires_grad(false));
  if (group_.rank() == 0) copy_values(place, tensor);
  tensor.set_data(place);
}

// All ranks have rank 0's values then, or their parts of them. A rank has one unit whole at a time.
void SharedParameters::fill() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!is_parted(i)) move_in(i);
  }
  spread(units_ == nullptr ? bytes_ : units_->plan().resident_end);
  for (std::size_t unit = 0; units_ != nullptr && unit < units_->plan().units.size(); ++unit) {
    units_->fill(unit, [&] {
      for (const std::size_t parameter : units_->plan().units[unit].parameters) move_in(parameter);
    });
  }
}

// All ranks have what rank 0 has written to its copy, up to that byte.
void SharedParameters::spread(std::size_t end) {
  const std::size_t begin = PLACE_ALIGNMENT * static_cast<std::size_t>(group_.size());  // behind the marks
  if (copies_ == Copies::ONE) return comm::barrier(group_).wait();
  if (machines_) return machines_->spread(at(begin), end - std::min(begin, end));
  if (end <= begin) return;
  if (are_on_device())
    broadcast(on_device_.slice(0, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end)),
              GroupRank{0}, group_);
  else
    comm::broadcast(group_, at(begin), end - begin, DType::UINT8, GroupRank{0}).wait();
}

// Shards come in the order of ranks and of parameters, so what a rank steps is one piece below the boundary
// and one behind it.
SharedParameters::Ranges SharedParameters::find_parts(const ShardPlan& plan, std::size_t whole_end) {
  const auto ranks = static_cast<std::size_t>(plan.ranks);
  Ranges ranges{.whole = std::vector<ByteRange>(ranks), .parted = std::vector<ByteRange>(ranks)};
  for (const ShardSpec& shard : plan.shards) {
    Place& place = places_[shard.parameter];
    const std::size_t item = parameters_[shard.parameter].second.element_size();
    auto& of_kind = place.begin < whole_end ? ranges.whole : ranges.parted;
    ByteRange& range = of_kind[static_cast<std::size_t>(shard.rank)];
    const std::size_t begin = place.begin + shard.offset * item;
    if (range.end == 0) range.begin = begin;
    range.end = begin + shard.count * item;
    if (shard.rank != group_.rank()) continue;
    place.offset = shard.offset;
    place.count = shard.count;
  }
  return ranges;
}

void SharedParameters::make_shards() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& parameter = parameters_[i].second;
    const std::size_t byte = places_[i].begin + places_[i].offset * parameter.element_size();
    std::byte* const begin = places_[i].count == 0 ? nullptr
                             : is_parted(i)        ? units_->memory().part_at(byte)
                                                   : at(byte);
    const at::TensorOptions options = parameter.options().requires_grad(false);
    const bool is_on_host = is_parted(i) && units_->memory().is_part_on_host();
    shards_.push_back(tensor_over(memory_, begin, {static_cast<std::int64_t>(places_[i].count)},
                                  is_on_host ? options.device(at::kCPU) : options)
                          .requires_grad_(true));
    if (units_ != nullptr) units_->ignore(shards_.back().storage().unsafeGetStorageImpl());
  }
}

std::atomic<std::uint64_t>& SharedParameters::mark_of(int rank) const {
  return *reinterpret_cast<std::atomic<std::uint64_t>*>(at(PLACE_ALIGNMENT * static_cast<std::size_t>(rank)));
}

// The fence stands between the mark and the look at the group's failure with which a meeting begins.
void SharedParameters::mark(std::uint64_t number) {
  if (sharers() == 1) return;  // nobody else looks
  mark_of(group_.rank()).store(number, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void SharedParameters::meet(std::uint64_t number, const std::function<void()>& meeting) {
  if (!machines_) {
    mark(number);
    return meeting();
  }
  meeting();
  mark(number);
  comm::barrier(machines_->machine()).wait();
}

bool SharedParameters::is_untouched(std::uint64_t number) const {
  if (sharers() == 1) return true;  // nobody else writes
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const auto is_marked = [&](int rank) { return mark_of(rank).load(std::memory_order_relaxed) == number; };
  for (int rank = 0; rank < sharers(); ++rank) {
    if (!is_marked(machines_ ? machines_->here()[static_cast<std::size_t>(rank)] : rank)) return true;
  }
  return false;
}

void SharedParameters::abandon() const {
  if (machines_) machines_->abort(std::current_exception());
}

int SharedParameters::sharers() const {
  if (copies_ == Copies::ONE) return group_.size();
  return machines_ ? machines_->machine().size() : 1;
}

// `ranks`: those of `group`, in the whole group.
void SharedParameters::gather(const ProcessGroup& group, const std::vector<int>& ranks) const {
  const auto range_of = [&](int rank) { return ranges_[static_cast<std::size_t>(rank)]; };
  if (are_on_device()) {
    const auto part_of = [&](int rank) {
      return on_device_.slice(0, static_cast<std::int64_t>(range_of(rank).begin),
                              static_cast<std::int64_t>(range_of(rank).end));
    };
    std::vector<at::Tensor> parts;
    for (const int rank : ranks) parts.push_back(part_of(rank));
    all_gather(parts, part_of(group_.rank()), group);
    return;
  }
  const auto part_of = [&](int rank) {
    return std::span(at(range_of(rank).begin), range_of(rank).end - range_of(rank).begin);
  };
  std::vector<std::span<std::byte>> parts;
  for (const int rank : ranks) parts.push_back(part_of(rank));
  const auto mine = part_of(group_.rank());
  comm::all_gather(group, mine.data(), mine.size(), DType::UINT8, std::move(parts)).wait();
}

void SharedParameters::collect() {
  const bool is_needed =
      std::any_of(ranges_.begin(), ranges_.end(), [](const ByteRange& r) { return r.end > 0; });
  if (machines_) {
    if (is_needed) gather(machines_->lane(), machines_->in_lane());
    fail_point("zero.collecting");
    comm::barrier(machines_->machine()).wait();
  } else if (copies_ != Copies::ONE && group_.size() > 1 && is_needed) {
    std::vector<int> all(ranges_.size());
    std::iota(all.begin(), all.end(), 0);
    gather(group_, all);
  }
  if (units_ != nullptr) units_->end_step();
  count_versions();
}

void SharedParameters::hold() const {
  if (units_ != nullptr) units_->hold_all();
}

void SharedParameters::write(const std::function<void()>& write) {
  if (group_.rank() == 0) write();
  spread(units_ == nullptr ? bytes_ : units_->plan().resident_end);
  if (units_ != nullptr) units_->spread_all();
  mark_written();
}

void SharedParameters::read(const std::function<void()>& read) {
  if (units_ == nullptr) return read();
  units_->hold_all();
  try {
    read();
  } catch (...) {
    units_->let_all_go();
    throw;
  }
  units_->let_all_go();
}

void SharedParameters::begin_forward(bool is_training) const {
  if (units_ != nullptr) units_->begin_forward(is_training);
}

void SharedParameters::end_forward() const {
  if (units_ != nullptr) units_->end_forward();
}

void SharedParameters::rethrow() const {
  if (units_ != nullptr) units_->rethrow();
}

void SharedParameters::settle() const {
  if (units_ != nullptr) units_->settle();
}

// They are made on the current stream.
void SharedParameters::wait_for_copies() const {
  if (are_on_device()) on_device_.slice(0, 0, 1).cpu();
}

void SharedParameters::mark_written() {
  if (units_ != nullptr) units_->let_all_go();
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

// On a GPU a parted one may have no address now, but it has its storage.
bool SharedParameters::is_in_place(std::size_t parameter) const {
  const at::Tensor& tensor = parameters_[parameter].second;
  if (is_parted(parameter) && are_on_device())
    return units_->contains(*tensor.storage().unsafeGetStorageImpl());
  return tensor.const_data_ptr() == at(places_[parameter].begin);
}

std::optional<std::string> SharedParameters::change() const {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, parameter] = parameters_[i];
    if (!is_in_place(i)) {
      return lockstep::str(
          "parameter ", in_quotes(name),
          " has left the memory that the ranks share: torch::load(), to(), set_data() and the "
          "like replace a parameter's memory. Load and convert a model before it is wrapped, or "
          "copy values into it within write_parameters()");
    }
    if (group_.size() > 1 && parameter._version() != places_[i].version) {
      return lockstep::str("parameter ", in_quotes(name), " was written to in place, by every rank on ",
                           sharers() > 1 ? "one" : "its",
                           " copy. Write within write_parameters(), which lets one rank do it for all; a "
                           "checkpoint loads into the wrapper: state.add(name, model)");
    }
  }
  return std::nullopt;
}

}  // namespace lockstep
