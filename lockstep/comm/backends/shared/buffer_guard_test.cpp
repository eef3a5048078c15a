#include "lockstep/comm/backends/shared/buffer_guard.h"

#include <gtest/gtest.h>

#include <array>

namespace lockstep::shared {
namespace {

TEST(BufferGuard, FindsTheFirstByteThatChanged) {
  std::array<std::byte, 50> buffer{};
  BufferGuard guard;
  EXPECT_FALSE(guard.is_watching());
  guard.watch(buffer.data(), buffer.size());
  EXPECT_TRUE(guard.is_watching());
  EXPECT_EQ(guard.bytes(), 50);
  EXPECT_EQ(guard.first_change(), std::nullopt);
  buffer[31] = buffer[40] = std::byte{1};
  EXPECT_EQ(guard.first_change(), 31);
  guard.end();
  EXPECT_FALSE(guard.is_watching());
}

}  // namespace
}  // namespace lockstep::shared
