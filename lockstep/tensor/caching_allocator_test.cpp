#include "lockstep/tensor/caching_allocator.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr std::size_t MIB = std::size_t{1} << 20U;

TEST(CachingAllocator, KeepsTheMemoryOfATensorForTheNext) {
  const at::Tensor before = at::ones({1000, 1000});
  ASSERT_TRUE(install_caching_allocator());
  ASSERT_TRUE(install_caching_allocator());  // once more changes nothing
  at::Tensor x = at::ones({1000, 1000});
  const void* memory = x.data_ptr();
  x.reset();
  x = at::zeros({999, 1001});
  EXPECT_EQ(x.data_ptr(), memory);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 64, 0U);
  EXPECT_EQ(x.sum().item<double>(), 0);
  EXPECT_EQ(before.sum().item<double>(), 1e6);  // of the other allocator
}

TEST(CachingAllocator, CountsAndEmpties) {
  ASSERT_TRUE(install_caching_allocator());
  at::Tensor x = at::empty({static_cast<std::int64_t>(4 * MIB)}, at::kByte);
  const auto with = allocator_stats();
  x.reset();
  const auto without = allocator_stats();
  EXPECT_EQ(with.in_use_bytes - without.in_use_bytes, 4 * MIB);
  EXPECT_EQ(without.cached_bytes - with.cached_bytes, 4 * MIB);
  empty_cache();
  EXPECT_EQ(allocator_stats().cached_bytes, 0U);
  set_allocator_cap(MIB);
  x = at::empty({static_cast<std::int64_t>(4 * MIB)}, at::kByte);
  x.reset();
  EXPECT_EQ(allocator_stats().cached_bytes, MIB);
}

// What libtorch demands of an allocator whose memory may be handed over as a plain pointer.
TEST(CachingAllocator, HasTheDataPointerAsContext) {
  ASSERT_TRUE(install_caching_allocator());
  for (const std::int64_t bytes : {0, 1, 100, 70000, 5000000}) {
    const at::Tensor x = at::empty({bytes}, at::kByte);
    const auto& data = x.storage().data_ptr();
    EXPECT_EQ(data.get(), data.get_context()) << bytes;
    EXPECT_EQ(data.get() == nullptr, bytes == 0);
  }
}

TEST(CachingAllocator, ComputesTheSameBits) {
  const auto compute = [] {
    at::Tensor x = at::linspace(-1, 1, 512 * 512).reshape({512, 512});
    for (int i = 0; i < 4; ++i) x = at::tanh(at::mm(x, x.t()) / 10);
    return x;
  };
  const at::Tensor usual = compute();
  ASSERT_TRUE(install_caching_allocator());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(at::equal(compute(), usual));
  EXPECT_GT(allocator_stats().reused, 0U);
}

TEST(CachingAllocator, WorksInAForkedChild) {
  ASSERT_TRUE(install_caching_allocator());
  std::jthread busy([](const std::stop_token& stop) {  // may hold the lock at the moment of a fork
    while (!stop.stop_requested()) (void)at::empty({100000});
  });
  for (int i = 0; i < 50; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      (void)at::empty({100000});
      _exit(9);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(WEXITSTATUS(status), 9);
  }
}

TEST(CachingAllocator, StaysAwayWhenSwitchedOff) {
  ::setenv("LOCKSTEP_ALLOCATOR", "off", 1);
  const bool before = is_caching_allocator_installed();  // by an earlier test, when all run in one process
  EXPECT_FALSE(install_caching_allocator());
  EXPECT_EQ(is_caching_allocator_installed(), before);
  ::setenv("LOCKSTEP_ALLOCATOR", "of", 1);
  EXPECT_THAT([] { install_caching_allocator(); },
              ::testing::ThrowsMessage<InvalidArgument>(::testing::HasSubstr("LOCKSTEP_ALLOCATOR")));
}

}  // namespace
}  // namespace lockstep
