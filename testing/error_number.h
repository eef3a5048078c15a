// The errno of the SystemError that a call throws.
//
//   EXPECT_EQ(error_number_of([] { duplicate(-1); }), EBADF);
#pragma once

#include "lockstep/base/error.h"

namespace lockstep::testing {

// 0 if it throws nothing.
template <typename Call> int error_number_of(Call call) {
  try {
    call();
  } catch (const SystemError& error) {
    return error.error_number();
  }
  return 0;
}

}  // namespace lockstep::testing
