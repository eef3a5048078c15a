#include "lockstep/parallel/zero/unit_storages.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/record_function.h>
#include <c10/core/TensorImpl.h>

#include <algorithm>
#include <string>
#include <utility>

#include "lockstep/tensor/collectives.h"

namespace lockstep {
namespace {

// Operators of this file are not looked at, because they run while an observer does.
struct Unobserved {
  const at::DisableRecordFunctionGuard no_observers;
  const at::NoGradGuard no_grad;
};

constexpr std::size_t ALIGNMENT = 64;  // as of the plan's places: their dtypes differ

// What libtorch throws for whoever asks for such a parameter's memory.
constexpr const char* IS_GONE =
    "this parameter is not gathered now: a rank has its part alone (ShardedDataParallel, stage 3). Read it "
    "by operators of libtorch, or within read_parameters()";

// libtorch 2.11 cannot take that back, so there the address alone says it: null.
template <typename Storage> void say_whether_gone(Storage& storage, bool is_gone) {
  if constexpr (requires { storage.clear_data_ptr_access_error_msg_(); }) {
    if (is_gone)
      storage.release_data_and_set_meta_custom_data_ptr_error_msg_(std::string(IS_GONE));
    else
      storage.clear_data_ptr_access_error_msg_();
  }
}

// Of zeros, in a file.
at::Tensor bytes_in(const std::shared_ptr<FileMemory>& file, std::size_t bytes) {
  const std::shared_ptr<void> memory(file, file->allocate(bytes));
  return tensor_over(memory, static_cast<std::byte*>(memory.get()), {static_cast<std::int64_t>(bytes)},
                     at::TensorOptions(at::kByte));
}

struct Owner {
  std::shared_ptr<void> held;
  static void drop(void* owner) { delete static_cast<Owner*>(owner); }  // NOLINT: of place()
};

}  // namespace

UnitStorages::UnitStorages(const UnitPlan& plan, const ByteRange& own, const NamedTensors& parameters,
                           UnitPlaces where)
    : plan_(plan),
      own_(own),
      device_(where.units),
      file_(std::move(where.file)),
      front_(own.begin % ALIGNMENT),
      blocks_(plan.units.size()),
      unplaced_(parameters.size()) {
  const std::size_t bytes = front_ + own.end - own.begin;
  const auto options = at::TensorOptions(where.part).pinned_memory(where.part.is_cpu()).dtype(at::kByte);
  part_ = file_ != nullptr ? bytes_in(file_, bytes) : at::empty({static_cast<std::int64_t>(bytes)}, options);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (plan.is_gathered(i)) {
      unplaced_[i] = c10::make_intrusive<c10::StorageImpl>(
          c10::StorageImpl::use_byte_size_t(), parameters[i].second.nbytes(), at::DataPtr(nullptr, device_),
          /*allocator=*/nullptr, /*resizable=*/false);
    }
    storages_.emplace_back(unplaced_[i]);
  }
  for (std::size_t unit = 0; unit < plan.units.size(); ++unit) {
    for (const std::size_t parameter : plan.units[unit].parameters) units_[unplaced_[parameter].get()] = unit;
  }
}

std::optional<std::size_t> UnitStorages::unit_of(c10::StorageImpl& storage) const {
  const auto found = units_.find(&storage);
  return found == units_.end() ? std::nullopt : std::optional(found->second);
}

std::size_t UnitStorages::bytes(std::size_t all, std::size_t live) const {
  return (part_.is_cpu() ? 0 : part_.nbytes()) + std::min(all, live);
}

at::Tensor UnitStorages::place(std::size_t parameter, const at::Tensor& like, std::shared_ptr<void> owner) {
  auto storage = std::move(unplaced_[parameter]);
  storage->set_data_ptr_noswap(
      at::DataPtr(nullptr, new Owner{std::move(owner)}, &Owner::drop, device_));  // NOLINT: drop() deletes
  point(units_.at(storage.get()));
  auto tensor = c10::make_intrusive<c10::TensorImpl>(
      c10::Storage(std::move(storage)), like.options().device(device_).computeDispatchKey(), like.dtype());
  tensor->set_sizes_contiguous(like.sizes());
  return at::Tensor(std::move(tensor));
}

std::byte* UnitStorages::part_at(std::size_t byte) {
  return static_cast<std::byte*>(part_.mutable_data_ptr()) + front_ + (byte - own_.begin);
}

// Of what has died meanwhile nothing is left to point anywhere.
void UnitStorages::point(std::size_t unit) const {
  for (const std::size_t parameter : plan_.units[unit].parameters) {
    const auto storage = storages_[parameter].lock();
    if (!storage || unplaced_[parameter]) continue;
    const std::size_t offset = plan_.begins[parameter] - plan_.units[unit].begin;
    std::byte* const block =
        blocks_[unit].defined() ? static_cast<std::byte*>(blocks_[unit].mutable_data_ptr()) : nullptr;
    at::DataPtr& before = storage->_mutable_data_ptr_no_checks();
    const c10::DeleterFnPtr deleter = before.get_deleter();
    void* const owner = before.release_context();
    storage->set_data_ptr_noswap(
        at::DataPtr(block == nullptr ? nullptr : block + offset, owner, deleter, device_));
    say_whether_gone(*storage, block == nullptr);
  }
}

void UnitStorages::take(std::size_t unit) {
  const Unobserved guard;
  const UnitSpec& spec = plan_.units[unit];
  blocks_[unit] = at::empty({static_cast<std::int64_t>(spec.end - spec.begin)},
                            at::TensorOptions(device_).dtype(at::kByte));
  point(unit);
}

void UnitStorages::let_go(std::size_t unit) {
  blocks_[unit].reset();
  point(unit);
}

// Bits that are all ones are NaN of any floating point.
void UnitStorages::poison(std::size_t unit) {
  if (!blocks_[unit].defined()) take(unit);
  const Unobserved guard;
  blocks_[unit].fill_(0xFF);
}

void UnitStorages::expect(std::size_t unit) {
  const ByteRange mine = common_range(plan_.units[unit], own_);
  if (file_ == nullptr || mine.begin == mine.end) return;
  file_->will_need({{part_at(mine.begin), mine.end - mine.begin}});
}

at::Tensor UnitStorages::in_block(std::size_t unit, const ByteRange& range) const {
  return blocks_[unit].narrow(0, static_cast<std::int64_t>(range.begin - plan_.units[unit].begin),
                              static_cast<std::int64_t>(range.end - range.begin));
}

at::Tensor UnitStorages::in_part(const ByteRange& range) const {
  const std::size_t bytes = range.end - range.begin;
  const std::size_t begin = bytes == 0 ? 0 : front_ + range.begin - own_.begin;
  return part_.narrow(0, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(bytes));
}

Work UnitStorages::gather(std::size_t unit, const ProcessGroup& group, const std::vector<ByteRange>& parts) {
  const Unobserved guard;
  std::vector<at::Tensor> whole;
  for (const ByteRange& range : parts) whole.push_back(in_block(unit, range));
  at::Tensor& own = whole[static_cast<std::size_t>(group.rank())];
  const at::Tensor part = in_part(parts[static_cast<std::size_t>(group.rank())]);
  expect(unit);
  own.copy_(part, /*non_blocking=*/true);
  return all_gather(whole, own, group, /*async_op=*/true);
}

void UnitStorages::spread(std::size_t unit, const ProcessGroup& group) {
  const Unobserved guard;
  broadcast(blocks_[unit], GroupRank{0}, group);
  const ByteRange mine = common_range(plan_.units[unit], own_);
  in_part(mine).copy_(in_block(unit, mine));
}

}  // namespace lockstep
