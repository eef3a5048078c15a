#include "lockstep/os/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "lockstep/os/child_process.h"
#include "lockstep/os/kernel_features.h"
#include "lockstep/os/unix_socket.h"
#include "testing/error_number.h"
#include "testing/temp_folder.h"

namespace lockstep {
namespace {

using testing::error_number_of;

constexpr std::size_t MIB = std::size_t{1} << 20U;

std::size_t allocated(const SharedMemory& memory) {
  struct stat status = {};
  EXPECT_EQ(fstat(memory.fd(), &status), 0);
  return static_cast<std::size_t>(status.st_blocks) * 512;
}

TEST(SharedMemory, OnlyWhatIsReservedIsRealAndReadsAsZero) {
  const auto memory = SharedMemory::create(64 * MIB);
  EXPECT_EQ(memory->size(), 64 * MIB);
  EXPECT_EQ(allocated(*memory), 0U);
  memory->reserve(4 * MIB, 2 * MIB);
  EXPECT_EQ(allocated(*memory), 2 * MIB);
  const std::byte* first = memory->data() + 4 * MIB;
  EXPECT_TRUE(std::all_of(first, first + 2 * MIB, [](std::byte b) { return b == std::byte{0}; }));
  EXPECT_EQ(allocated(*memory), 2 * MIB);
}

// Bytes in huge pages, of the mapping that begins at `memory.data()`.
std::size_t in_huge_pages(const SharedMemory& memory) {
  std::ostringstream start;
  start << std::hex << reinterpret_cast<std::uintptr_t>(memory.data()) << "-";
  std::ifstream maps("/proc/self/smaps");
  bool is_found = false;
  for (std::string line; std::getline(maps, line);) {
    is_found = is_found || line.starts_with(start.str());
    if (is_found && line.starts_with("ShmemPmdMapped:")) return std::stoul(line.substr(15)) * 1024;
  }
  return 0;
}

TEST(SharedMemory, LargeReservationsLieInHugePagesInEveryProcess) {
  const auto memory = SharedMemory::create(64 * MIB);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory->data()) % (2 * MIB), 0U);
  memory->reserve(2 * MIB, 8 * MIB);
  const std::size_t huge = in_huge_pages(*memory);
  EXPECT_EQ(allocated(*memory), 8 * MIB);
  // Small pages are right without MADV_COLLAPSE (Linux 6.1) or a free huge page.
  const bool has_any = madvise(memory->data() + 2 * MIB, 8 * MIB, /*MADV_COLLAPSE=*/25) == 0;
  EXPECT_EQ(huge, has_any ? 8 * MIB : 0);
  const auto same = SharedMemory::adopt(duplicate(memory->fd()));
  same->data()[3 * MIB] = std::byte{1};
  EXPECT_EQ(in_huge_pages(*same), has_any ? 2 * MIB : 0);  // the access touched one huge page
  memory->reserve(10 * MIB, 2 * MIB);                      // below the smallest size for huge pages
  EXPECT_EQ(in_huge_pages(*memory), has_any ? 8 * MIB : 0);
}

TEST(SharedMemory, NothingBehindTheEndIsReserved) {
  const auto memory = SharedMemory::create(MIB);
  constexpr std::size_t HUGE_SIZE = std::numeric_limits<std::size_t>::max();
  EXPECT_EQ(error_number_of([&] { memory->reserve(0, MIB + 1); }), ENOMEM);
  EXPECT_EQ(error_number_of([&] { memory->reserve(MIB, 1); }), ENOMEM);
  EXPECT_EQ(error_number_of([&] { memory->reserve(2 * MIB, 0); }), ENOMEM);
  EXPECT_EQ(error_number_of([&] { memory->reserve(10, HUGE_SIZE - 5); }), ENOMEM);
  EXPECT_EQ(error_number_of([&] { memory->reserve(0, MIB); }), 0);
}

TEST(SharedMemory, AnotherProcessSeesTheSame) {
  const auto memory = SharedMemory::create(MIB);
  memory->reserve(0, MIB);
  memory->data()[100] = std::byte{41};
  const pid_t child = fork_child([&] {
    const auto same = SharedMemory::adopt(duplicate(memory->fd()));
    if (same->size() != MIB || same->data()[100] != std::byte{41}) return 1;
    same->data()[MIB - 1] = std::byte{42};
    return 0;
  });
  EXPECT_EQ(wait_exit(child).code, 0);
  EXPECT_EQ(memory->data()[MIB - 1], std::byte{42});
}

TEST(SharedMemory, LivesUntilTheLastOneLetsGo) {
  Fd fd;
  {
    const auto memory = SharedMemory::create(MIB);
    memory->reserve(0, MIB);
    memory->data()[7] = std::byte{7};
    fd = duplicate(memory->fd());
  }
  EXPECT_EQ(SharedMemory::adopt(std::move(fd))->data()[7], std::byte{7});
}

// A child that continues after a fork must not keep the memory of a rank that has ended. The address alone
// proves nothing, because the child may map other memory there.
TEST(SharedMemory, AForkDoesNotInheritTheMapping) {
  const auto memory = SharedMemory::create(MIB, {.name = "lockstep-not-inherited"});
  const auto is_mapped = [] {
    std::ifstream maps("/proc/self/maps");
    const std::string all{std::istreambuf_iterator<char>(maps), {}};
    return all.find("memfd:lockstep-not-inherited") != std::string::npos;
  };
  EXPECT_TRUE(is_mapped());
  const pid_t child = fork_child([&] { return is_mapped() ? 1 : 0; });
  EXPECT_EQ(wait_exit(child).code, 0);
}

// Without seals (LOCKSTEP_DISABLE=seals) both are allowed: the kernel feature forbids them.
TEST(SharedMemory, CannotBeResizedByAnybody) {
  const bool sealed = kernel_has(KernelFeature::SEALS);
  const auto memory = SharedMemory::create(MIB);
  for (const off_t size : {0L, 4096L, 2L << 20U}) {
    errno = 0;
    EXPECT_EQ(ftruncate(memory->fd(), size), sealed ? -1 : 0);
    EXPECT_EQ(errno, sealed ? EPERM : 0);
  }
  EXPECT_EQ(fcntl(memory->fd(), F_ADD_SEALS, F_SEAL_WRITE), -1);  // a mapping may be written to
  EXPECT_EQ(errno, sealed ? EPERM : EBUSY);
}

TEST(SharedMemory, WhatAPeerCouldShrinkIsRefused) {
  const int refusal = kernel_has(KernelFeature::SEALS) ? EPERM : 0;
  const testing::TempFolder folder;
  const std::string path = folder.write("file", std::string(4096, 'x'));
  EXPECT_EQ(error_number_of([&] { SharedMemory::adopt(Fd(open(path.c_str(), O_RDWR | O_CLOEXEC))); }),
            refusal);
  Fd open_ended(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(open_ended.get(), 4096), 0);
  ASSERT_EQ(fcntl(open_ended.get(), F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SEAL), 0);
  EXPECT_EQ(error_number_of([&] { SharedMemory::adopt(std::move(open_ended)); }), refusal);
}

// The addresses are reserved before the segment is mapped there.
TEST(SharedMemory, AMappingThatFailsKeepsNoAddresses) {
  constexpr int ROUNDS = 100;
  const auto mapped_bytes = [] {
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  };
  const std::size_t before = mapped_bytes();
  for (int round = 0; round < ROUNDS; ++round) {
    Fd fd(memfd_create("read_only", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(ftruncate(fd.get(), 4 * MIB), 0);
    ASSERT_EQ(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | F_SEAL_WRITE), 0);
    EXPECT_EQ(error_number_of([&] { SharedMemory::adopt(std::move(fd)); }), EPERM);
  }
  EXPECT_LT(mapped_bytes(), before + ROUNDS * MIB);  // of the 4 MiB that each round reserved
}

TEST(SharedMemory, HasNoNameAndIsNotPassedToPrograms) {
  const auto memory = SharedMemory::create(MIB);
  struct stat status = {};
  ASSERT_EQ(fstat(memory->fd(), &status), 0);
  EXPECT_EQ(status.st_nlink, 0U);
  EXPECT_EQ(fcntl(memory->fd(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

TEST(SharedMemory, IsFoundInThisProcessByItsName) {
  const auto one = SharedMemory::create(1, {.name = "lockstep-found", .huge_pages = false});
  const auto other = SharedMemory::create(1, {.name = "lockstep-found-not", .huge_pages = false});
  EXPECT_EQ(mapped_memory_files("lockstep-found"), std::vector<const std::byte*>{one->data()});
  EXPECT_TRUE(mapped_memory_files("lockstep-nobody").empty());
}

}  // namespace
}  // namespace lockstep
