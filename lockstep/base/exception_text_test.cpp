#include "lockstep/base/exception_text.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace lockstep {
namespace {

TEST(ExceptionText, IsWhatTheExceptionSays) {
  EXPECT_EQ(exception_text(std::make_exception_ptr(std::runtime_error("no paper"))), "no paper");
  EXPECT_EQ(exception_text(std::make_exception_ptr(7)), "an exception of unknown type");
  EXPECT_EQ(exception_text(nullptr), "");
}

}  // namespace
}  // namespace lockstep
