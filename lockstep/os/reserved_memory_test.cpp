// Pages that come and go behind pointers that stay.
#include "lockstep/os/reserved_memory.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <cstddef>

#include "testing/reference.h"

namespace lockstep {
namespace {

constexpr std::size_t PAGE = ReservedMemory::PAGE;

TEST(ReservedMemory, PagesComeWithZerosAndGoWithWhatTheyHeld) {
  ReservedMemory memory(3 * PAGE - 5);
  EXPECT_EQ(memory.bytes(), 3 * PAGE);
  memory.admit(PAGE, 3 * PAGE);
  memory.data()[PAGE] = std::byte{7};
  memory.data()[3 * PAGE - 1] = std::byte{8};
  memory.discard(PAGE, 2 * PAGE);
  EXPECT_EQ(memory.data()[3 * PAGE - 1], std::byte{8});
  memory.admit(PAGE, 2 * PAGE);
  EXPECT_EQ(memory.data()[PAGE], std::byte{0});
  memory.admit(PAGE, PAGE);
  memory.discard(PAGE, PAGE);
}

TEST(ReservedMemoryDeathTest, ATouchOfAPageThatIsNotThereIsAFault) {
  ReservedMemory memory(2 * PAGE);
  memory.admit(0, 2 * PAGE);
  memory.data()[0] = std::byte{1};
  memory.discard(0, PAGE);
  const auto is_fault = [](int status) {  // a sanitizer ends the process itself
    return ::testing::KilledBySignal(SIGSEGV)(status) ||
           (reference::SANITIZED && WIFEXITED(status) && WEXITSTATUS(status) != 0);
  };
  EXPECT_EXIT(static_cast<void>(*static_cast<volatile std::byte*>(memory.data())), is_fault, "");
}

}  // namespace
}  // namespace lockstep
