#include "lockstep/formats/box_bytes.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace lockstep {

void place_box(std::span<const std::byte> box, const std::vector<std::int64_t>& offsets,
               const std::vector<std::int64_t>& sizes, const std::vector<std::int64_t>& shape,
               std::size_t element, std::span<std::byte> whole) {
  // The dimensions behind `inner` are covered fully, so that the box has runs of adjacent elements.
  std::size_t inner = shape.size();
  while (inner > 0 && sizes[inner - 1] == shape[inner - 1]) --inner;
  if (inner > 0) --inner;
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  const auto product = [&](std::size_t from, std::size_t to) {
    return std::accumulate(sizes.begin() + static_cast<std::ptrdiff_t>(from),
                           sizes.begin() + static_cast<std::ptrdiff_t>(to), std::int64_t{1},
                           std::multiplies<>());
  };
  const std::int64_t runs = product(0, inner);
  const auto run_bytes = static_cast<std::size_t>(product(inner, shape.size())) * element;
  for (std::int64_t run = 0; run < runs; ++run) {
    std::int64_t first = 0;
    std::int64_t rest = run;
    for (std::size_t d = shape.size(); d-- > 0;) {
      const std::int64_t index = d < inner ? rest % sizes[d] : 0;
      if (d < inner) rest /= sizes[d];
      first += (offsets[d] + index) * strides[d];
    }
    std::copy_n(box.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(run) * run_bytes),
                run_bytes,
                whole.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(first) * element));
  }
}

}  // namespace lockstep
