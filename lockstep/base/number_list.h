// number_list({0, 2, 3, 4, 5, 8}): "0, 2-5, 8", for messages. The text is never long: of many parts the first
// are shown, then "... and 12 more".
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/str.h"

namespace lockstep {

// In the given order. Three or more consecutive numbers are a range.
inline std::string number_list(const std::vector<int>& numbers) {
  constexpr std::size_t MOST_PIECES = 8;
  std::string text;
  std::size_t pieces = 0;
  for (std::size_t first = 0; first < numbers.size(); ++pieces) {
    if (pieces == MOST_PIECES) return text + str(" and ", numbers.size() - first, " more");
    std::size_t last = first;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (last == first + 1) last = first;
    text += text.empty() ? "" : ", ";
    text += last == first ? str(numbers[first]) : str(numbers[first], "-", numbers[last]);
    first = last + 1;
  }
  return text;
}

// "rank 3", "ranks 0, 2-5".
inline std::string rank_list(const std::vector<int>& ranks) {
  return str(ranks.size() == 1 ? "rank " : "ranks ", number_list(ranks));
}

}  // namespace lockstep
