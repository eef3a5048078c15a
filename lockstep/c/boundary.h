// The boundary between C and C++: what the functions of the C interface have in common. No exception passes
// it.
//
//   int lockstep_size(lockstep_group group, int* size) {
//     return guarded("lockstep_size", [&] { required(size, "size") = group_of(group).size(); });
//   }
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#include "lockstep/base/dtype.h"
#include "lockstep/base/str.h"
#include "lockstep/c/error.h"
#include "lockstep/c/types.h"

namespace lockstep::c {

// An error that the C interface itself finds. Its text gets the function's name in front.
class Failure : public std::runtime_error {
 public:
  Failure(lockstep_code code, const std::string& text) : std::runtime_error(text), code_(code) {}
  lockstep_code code() const { return code_; }

 private:
  lockstep_code code_;
};

// To be called while an exception is handled: keeps it as this thread's last failure and returns its code.
int take_failure(const char* function) noexcept;

template <typename Body> int guarded(const char* function, Body&& body) noexcept {
  try {
    body();
    return LOCKSTEP_OK;
  } catch (...) {
    return take_failure(function);
  }
}

// Arguments. All of these throw Failure with INVALID_ARGUMENT.

template <typename T> T& required(T* argument, const char* name) {
  if (argument == nullptr) throw Failure(LOCKSTEP_ERROR_INVALID_ARGUMENT, str(name, " is NULL"));
  return *argument;
}
// The place for a handle that the function will give. It is null until then.
inline std::int64_t& cleared(std::int64_t* place, const char* name) {
  required(place, name) = 0;
  return *place;
}
DType dtype_of(int dtype);
ReduceOp op_of(int op);
// Nothing for 0, which means a default.
std::optional<std::chrono::milliseconds> milliseconds(std::int64_t number, const char* name);
// `initializer` is the macro with which the program should have begun the struct.
void check_struct_size(std::size_t given, std::size_t known, const char* initializer);

// What the program gave, or the defaults if it gave NULL.
template <typename Options>
Options options_of(const Options* given, const Options& defaults, const char* initializer) {
  if (given == nullptr) return defaults;
  check_struct_size(given->struct_size, sizeof(Options), initializer);
  return *given;
}

}  // namespace lockstep::c
