// round_up(bytes, step): the least multiple of `step` that is not below `bytes`.
#pragma once

#include <cstddef>

namespace lockstep {

constexpr std::size_t round_up(std::size_t bytes, std::size_t step) {
  return (bytes + step - 1) / step * step;
}

}  // namespace lockstep
