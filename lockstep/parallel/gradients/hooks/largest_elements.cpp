#include "lockstep/parallel/gradients/hooks/largest_elements.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/topk.h>

#include <algorithm>
#include <array>
#include <bit>
#include <span>

namespace lockstep {
namespace {

constexpr int DIGIT = 11;  // in bits; the counters of all its values fit into the first-level cache
using Counters = std::array<std::int64_t, std::size_t{1} << DIGIT>;

template <typename Key, typename Real> Key key_of(Real value) {
  constexpr Key MAGNITUDE = static_cast<Key>(~Key{0}) >> 1U;
  return std::bit_cast<Key>(value) & MAGNITUDE;
}

// Keys above `prefix` in the bits of `mask` are among the largest. So are the first `equal` keys that match
// it.
template <typename Key> struct Threshold {
  Key prefix = 0;
  Key mask = 0;
  std::int64_t equal = 0;
};

template <typename Key, typename Real>
Counters count_digits(std::span<const Real> values, const Threshold<Key>& so_far, int shift) {
  constexpr Key VALUES = (Key{1} << DIGIT) - 1;
  // two sets, because an increment waits for an earlier one of the same counter
  std::array<Counters, 2> counters{};
  std::size_t i = 0;
  for (const Real value : values) {
    const Key key = key_of<Key>(value);
    if ((key & so_far.mask) == so_far.prefix) ++counters[i++ % 2][(key >> shift) & VALUES];
  }
  for (std::size_t digit = 0; digit < counters[0].size(); ++digit) counters[0][digit] += counters[1][digit];
  return counters[0];
}

template <typename Key, typename Real>
Threshold<Key> find_threshold(std::span<const Real> values, std::int64_t count) {
  Threshold<Key> found{.equal = count};
  for (int left = static_cast<int>(sizeof(Key)) * 8 - 1; left > 0;) {
    const int shift = std::max(0, left - DIGIT);
    const Counters counters = count_digits(values, found, shift);
    std::size_t digit = counters.size() - 1;
    while (counters[digit] < found.equal) found.equal -= counters[digit--];
    found.prefix |= static_cast<Key>(digit) << shift;
    found.mask |= ((Key{1} << DIGIT) - 1) << shift;
    // all of these are taken, whatever their other bits are
    if (counters[digit] == found.equal) return found;
    left = shift;
  }
  return found;
}

template <typename Key, typename Real>
void select(std::span<const Real> values, std::int64_t count, std::int64_t* places) {
  Threshold<Key> threshold = find_threshold<Key>(values, count);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Key key = key_of<Key>(values[i]) & threshold.mask;
    if (key < threshold.prefix) continue;
    if (key == threshold.prefix && threshold.equal-- <= 0) continue;
    *places++ = static_cast<std::int64_t>(i);
  }
}

}  // namespace

at::Tensor largest_places(const at::Tensor& values, std::int64_t count) {
  if (!values.is_cpu()) return std::get<1>(at::topk(values.abs(), count, 0, true, /*sorted=*/false));
  at::Tensor places = at::empty({count}, at::kLong);
  const auto size = static_cast<std::size_t>(values.numel());
  auto* const to = places.mutable_data_ptr<std::int64_t>();
  if (count == 0) return places;
  if (values.scalar_type() == at::kDouble) {
    select<std::uint64_t>(std::span(values.const_data_ptr<double>(), size), count, to);
  } else {
    select<std::uint32_t>(std::span(values.const_data_ptr<float>(), size), count, to);
  }
  return places;
}

}  // namespace lockstep
