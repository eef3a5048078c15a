#include "lockstep/tensor/caching_allocator.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>
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

// Forks while `busy` runs on another thread; how the child ended that ran `then`.
int fork_beside(const std::function<void(const std::stop_token&)>& busy, const std::function<void()>& then) {
  std::atomic<bool> has_begun{false};
  const std::jthread thread([&](const std::stop_token& stop) {
    has_begun = true;
    busy(stop);
  });
  while (!has_begun) {
  }
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // a child that hangs is killed, which is not exit code 0
    then();
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

TEST(CachingAllocator, WorksInAForkedChild) {
  ASSERT_TRUE(install_caching_allocator());
  const auto allocate = [] { (void)at::empty({100000}); };
  const auto always = [&](const std::stop_token& stop) {  // may hold the lock at the moment of a fork
    while (!stop.stop_requested()) allocate();
  };
  allocate();  // libtorch's own first time is not safe beside a fork: at::empty() looks itself up once
  for (int i = 0; i < 50; ++i) ASSERT_EQ(fork_beside(always, allocate), 0) << i;
}

// What the first allocation makes must not be half made in a child. Each trial is a process of its own, and
// so allocates for the first time (CTest runs every test alone, so nothing was allocated before).
TEST(CachingAllocator, WorksInAChildForkedDuringTheFirstAllocation) {
  ASSERT_TRUE(install_caching_allocator());
  const auto allocate = [] { (void)c10::GetAllocator(c10::DeviceType::CPU)->allocate(400000); };
  for (int i = 0; i < 200; ++i) {
    const pid_t trial = fork();
    if (trial == 0) _exit(fork_beside([&](const std::stop_token&) { allocate(); }, allocate) == 0 ? 0 : 1);
    int status = -1;
    ASSERT_EQ(waitpid(trial, &status, 0), trial);
    ASSERT_EQ(status, 0) << i;
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
