// The text of an exception that was kept for later.
//
//   log(LogLevel::WARNING, exception_text(work.exception()));
#pragma once

#include <exception>
#include <string>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

// Its what(); empty for null.
std::string exception_text(const std::exception_ptr& exception);

}  // namespace lockstep
