// Bytes of a huge page, which memory must begin at a multiple of.
#pragma once

#include <cstddef>

namespace lockstep {

inline constexpr std::size_t HUGE_PAGE = std::size_t{2} << 20U;

}  // namespace lockstep
