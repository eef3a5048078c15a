// The size of a huge page. Memory for huge pages begins at a multiple of it.
#pragma once

#include <cstddef>

namespace lockstep {

inline constexpr std::size_t HUGE_PAGE = std::size_t{2} << 20U;

}  // namespace lockstep
