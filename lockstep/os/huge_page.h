// The bytes of a huge page. Memory that is to lie in huge pages begins at a multiple of this number.
#pragma once

#include <cstddef>

namespace lockstep {

inline constexpr std::size_t HUGE_PAGE = std::size_t{2} << 20U;

}  // namespace lockstep
