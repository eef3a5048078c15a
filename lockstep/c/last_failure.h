// The last failure of a thread, as lockstep_error_text() and its neighbours tell it.
//
//   return last_failure().keep(LOCKSTEP_ERROR_INTERNAL, {function, ": ", text});
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace lockstep::c {

struct LastFailure {
  const char* text = "";
  int peer = -1;
  int number = 0;
  std::string memory = {};  // of text

  // Keeps the parts as one text, and returns the code.
  int keep(int code, std::initializer_list<std::string_view> parts) noexcept;
};

LastFailure& last_failure();  // of this thread

}  // namespace lockstep::c
