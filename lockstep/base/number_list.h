// number_list({0, 2, 3}): "0, 2, 3", for messages.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/str.h"

namespace lockstep {

inline std::string number_list(const std::vector<int>& numbers) {
  std::string text;
  for (const int number : numbers) text += str(text.empty() ? "" : ", ", number);
  return text;
}

}  // namespace lockstep
