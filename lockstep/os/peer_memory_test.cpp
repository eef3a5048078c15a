#include "lockstep/os/peer_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <numeric>
#include <vector>

#include "lockstep/os/child_process.h"
#include "lockstep/os/kernel_features.h"
#include "lockstep/os/process.h"

namespace lockstep {
namespace {

std::uint64_t address_of(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }

// A process may always read itself, unless a filter forbids the call. The kernel feature must report just
// that.
TEST(PeerMemory, OfThisProcess) {
  const PeerMemory self(current_pid(), PeerMemory::introduction());
  ASSERT_EQ(self.can_be_read(), kernel_has(KernelFeature::PEER_MEMORY));
  std::vector<int> numbers(100000);
  std::iota(numbers.begin(), numbers.end(), 7);
  std::vector<int> copy(numbers.size());
  EXPECT_TRUE(self.read(address_of(numbers.data()), std::as_writable_bytes(std::span(copy))));
  EXPECT_EQ(copy, numbers);
}

// The parent reads memory that the child has changed in its own copy.
TEST(PeerMemory, OfAnotherProcess) {
  if (!kernel_has(KernelFeature::PEER_MEMORY)) return;  // the test OfThisProcess covers this case
  std::vector<int> numbers(1000, 1);
  const std::string introduction = PeerMemory::introduction();  // the child's copy is at the same address
  int written[2];
  int over[2];
  ASSERT_EQ(pipe(written), 0);
  ASSERT_EQ(pipe(over), 0);
  const pid_t child = fork_child([&] {
    std::fill(numbers.begin(), numbers.end(), 2);
    char byte = 0;
    return write(written[1], &byte, 1) == 1 && read(over[0], &byte, 1) == 1 ? 0 : 1;
  });
  char byte = 0;
  ASSERT_EQ(read(written[0], &byte, 1), 1);
  const PeerMemory peer(child, introduction);
  ASSERT_TRUE(peer.can_be_read());
  std::vector<int> copy(numbers.size());
  EXPECT_TRUE(peer.read(address_of(numbers.data()), std::as_writable_bytes(std::span(copy))));
  EXPECT_EQ(copy, std::vector<int>(1000, 2));
  EXPECT_EQ(numbers, std::vector<int>(1000, 1));
  ASSERT_EQ(write(over[1], &byte, 1), 1);
  EXPECT_EQ(wait_exit(child).code, 0);
  EXPECT_FALSE(
      peer.read(address_of(numbers.data()), std::as_writable_bytes(std::span(copy))));  // the child has ended
  for (const int fd : {written[0], written[1], over[0], over[1]}) close(fd);
}

TEST(PeerMemory, ThatIsNotThere) {
  const PeerMemory self(current_pid(), PeerMemory::introduction());
  void* page = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  munmap(static_cast<std::byte*>(page) + 4096, 4096);
  std::vector<std::byte> copy(8192);
  EXPECT_FALSE(self.read(address_of(page), copy));
  munmap(page, 4096);
}

// A process of another namespace may have this pid, but it does not know the number.
TEST(PeerMemory, WrongIntroductions) {
  for (const std::string text : {"", "x", "12", "12:", "1:2", "0:0", ":", "99999999999999999999999:1"})
    EXPECT_FALSE(PeerMemory(current_pid(), text).can_be_read()) << text;
  std::string other = PeerMemory::introduction();
  other.back() = other.back() == '1' ? '2' : '1';
  EXPECT_FALSE(PeerMemory(current_pid(), other).can_be_read());
}

}  // namespace
}  // namespace lockstep
