#include "lockstep/parallel/gradients/virtual_sum.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "lockstep/base/str.h"
#include "lockstep/comm/kernels/reduce_kernels.h"
#include "lockstep/tensor/collectives.h"

namespace lockstep {
namespace {

std::byte* data_of(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.data_ptr()); }

std::size_t elements_of(const at::Tensor& tensor) { return static_cast<std::size_t>(tensor.numel()); }

// Stores `left` + `right` in `into`, which may be one of them.
void add(DType dtype, std::byte* into, const std::byte* left, const std::byte* right, std::size_t count) {
  const std::array<const std::byte*, 2> inputs = {left, right};
  reduce(dtype, ReduceOp::SUM, inputs, std::span(&into, 1), count);
}

void add(const at::Tensor& into, const at::Tensor& left, const at::Tensor& right) {
  add(dtype_of(into.scalar_type()), data_of(into), data_of(left), data_of(right), elements_of(into));
}

void copy_widened(const at::Tensor& from, const at::Tensor& to) {
  if (is_16_bits(from.scalar_type())) {
    widen(dtype_of(from.scalar_type()), data_of(from), data_of(to), elements_of(from));
  } else {
    std::memcpy(to.data_ptr(), from.const_data_ptr(), from.nbytes());
  }
}

// Rounds the first tensor of `from` into all of `to`.
void copy_narrowed(const at::Tensor& from, const at::Tensor& to) {
  if (is_16_bits(to.scalar_type())) {
    narrow(dtype_of(to.scalar_type()), data_of(from), data_of(to), elements_of(to));
  } else {
    std::memcpy(to.data_ptr(), from.const_data_ptr(), to.nbytes());
  }
}

at::TensorOptions wide_options(const at::Tensor& values) {
  return values.options().dtype(is_16_bits(values.scalar_type()) ? at::kFloat : values.scalar_type());
}

void divide_by(const at::Tensor& sum, std::size_t count, int ranks) {
  divide(dtype_of(sum.scalar_type()), data_of(sum), count, ranks);
}

at::Tensor taken_from(std::vector<at::Tensor>& tensors) {
  at::Tensor last = std::move(tensors.back());
  tensors.pop_back();
  return last;
}

}  // namespace

VirtualSum::VirtualSum(VirtualRankPlan plan, int process)
    : plan_(std::move(plan)), process_(static_cast<std::size_t>(process)), turn_(share().first) {}

std::string VirtualSum::describe() const {
  return lockstep::str("average over ", plan_.virtual_ranks, " virtual ranks");
}

void VirtualSum::Sums::forget() {
  tree.clear();
  while (!partial.empty()) spare.push_back(taken_from(partial));
}

void VirtualSum::begin_round() {
  for (Sums& sums : sums_) sums.forget();
}

VirtualSum::Sums& VirtualSum::sums_of(std::size_t bucket) {
  while (sums_.size() <= bucket) sums_.emplace_back(plan_.virtual_ranks);
  return sums_[bucket];
}

HookStep VirtualSum::run(const GradBucket& bucket) {
  const bool is_one_each = plan_.shares.size() == static_cast<std::size_t>(plan_.virtual_ranks);
  if (is_one_each) return all_reduce(bucket.buffer(), ReduceOp::AVG, bucket.group(), /*async_op=*/true);
  const c10::NoGradGuard no_grad;
  Sums& sums = sums_of(bucket.index());
  const at::Tensor values = bucket.reals();
  if (!is_last_turn()) {
    keep(sums, values);
    return {};
  }
  at::Tensor root = values;
  if (is_16_bits(values.scalar_type())) {
    root = wide_.of(bucket.index(), values.numel(), wide_options(values), bucket.group());
    copy_widened(values, root);
  }
  for (int additions = sums.tree.push({.first = turn_}); additions > 0; --additions) {
    const at::Tensor left = taken_from(sums.partial);
    add(root, left, root);
    sums.spare.push_back(left);
  }
  std::vector<at::Tensor> roots = sums.partial;
  roots.push_back(root);
  sums.forget();
  return plan_.one_root_each ? reduce_root(root, bucket) : exchange(roots, bucket);
}

// Adds the new leaf to its left neighbour, or copies it if there is none.
void VirtualSum::keep(Sums& sums, const at::Tensor& values) const {
  const bool has_spare = !sums.spare.empty() && sums.spare.back().numel() == values.numel();
  at::Tensor leaf = values;
  int additions = sums.tree.push({.first = turn_});
  const bool is_copied = additions == 0 || is_16_bits(values.scalar_type());
  if (is_copied) {
    leaf = has_spare ? taken_from(sums.spare) : at::empty({values.numel()}, wide_options(values));
    copy_widened(values, leaf);
  }
  bool is_ours = is_copied;
  for (; additions > 0; --additions) {
    const at::Tensor left = taken_from(sums.partial);
    add(left, left, leaf);
    if (is_ours) sums.spare.push_back(leaf);
    leaf = left;
    is_ours = true;
  }
  sums.partial.push_back(leaf);
}

HookStep VirtualSum::reduce_root(const at::Tensor& root, const GradBucket& bucket) const {
  return {all_reduce(root, ReduceOp::SUM, bucket.group(), /*async_op=*/true),
          [root, values = bucket.reals(), ranks = plan_.virtual_ranks] {
            divide_by(root, elements_of(root), ranks);
            if (!root.is_same(values) && root.const_data_ptr() != values.const_data_ptr())
              copy_narrowed(root, values);
            return HookStep();
          }};
}

// The message to each process has its part of each of this process's roots.
HookStep VirtualSum::exchange(const std::vector<at::Tensor>& roots, const GradBucket& bucket) {
  constexpr std::int64_t LINE = 16;  // in elements: parts are whole cache lines
  const auto processes = static_cast<std::int64_t>(plan_.shares.size());
  const auto count = static_cast<std::int64_t>(roots.size());
  const std::int64_t elements = roots[0].numel();
  const std::int64_t each = ((elements + processes - 1) / processes + LINE - 1) / LINE * LINE;
  const auto width = static_cast<std::int64_t>(roots[0].element_size());
  const at::TensorOptions options = roots[0].options();
  const auto memory = [&](HookMemory& of, std::int64_t parts) {
    return of.of(bucket.index(), parts * each, options, bucket.group());
  };
  const at::Tensor message = memory(messages_, processes * count);
  const at::Tensor parts = memory(parts_, plan_.roots());
  const at::Tensor gathered = memory(gathered_, processes);
  std::vector<std::int64_t> sent(plan_.shares.size(), count * each);
  std::vector<std::int64_t> received;
  for (const VirtualShare& other : plan_.shares)
    received.push_back(static_cast<std::int64_t>(other.roots.size()) * each);
  std::byte* place = data_of(message);
  for (std::int64_t process = 0; process < processes; ++process) {
    const std::int64_t begin = std::min(process * each, elements);
    const std::int64_t length = std::min(each, elements - begin);
    for (const at::Tensor& root : roots) {
      std::memcpy(place, data_of(root) + begin * width, static_cast<std::size_t>(length * width));
      place += each * width;
    }
  }
  return {all_to_all_single(parts, message, received, sent, bucket.group(), /*async_op=*/true),
          [this, parts, message, gathered, each, group = bucket.group(), values = bucket.reals()] {
            const c10::NoGradGuard no_grad;
            add_up_parts(parts, each);
            return HookStep(all_gather_into_tensor(gathered, parts.narrow(0, 0, each), group, true),
                            [gathered, values] {
                              copy_narrowed(gathered, values);
                              return HookStep();
                            });
          }};
}

// Leaves the average in the first part.
void VirtualSum::add_up_parts(const at::Tensor& parts, std::int64_t each) const {
  const DType dtype = dtype_of(parts.scalar_type());
  const auto step = each * static_cast<std::int64_t>(parts.element_size());
  VirtualTree tree(plan_.virtual_ranks);
  std::vector<std::byte*> sums;
  std::byte* part = data_of(parts);
  for (const VirtualShare& other : plan_.shares) {
    for (const VirtualSubtree& root : other.roots) {
      sums.push_back(std::exchange(part, part + step));
      for (int additions = tree.push(root); additions > 0; --additions) {
        const std::byte* const right = sums.back();
        sums.pop_back();
        add(dtype, sums.back(), sums.back(), right, static_cast<std::size_t>(each));
      }
    }
  }
  divide_by(parts, static_cast<std::size_t>(each), plan_.virtual_ranks);
}

}  // namespace lockstep
