#include "lockstep/c/last_failure.h"

namespace lockstep::c {

int LastFailure::keep(int code, std::initializer_list<std::string_view> parts) noexcept {
  peer = -1;
  number = 0;
  try {
    memory.clear();
    for (const std::string_view part : parts) memory += part;
    text = memory.c_str();
  } catch (...) {
    text = "there is not enough memory for the text of an error";
  }
  return code;
}

LastFailure& last_failure() {
  static thread_local LastFailure last;
  return last;
}

}  // namespace lockstep::c
