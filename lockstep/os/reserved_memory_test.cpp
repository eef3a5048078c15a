// Pages that come and go behind pointers that stay.
#include "lockstep/os/reserved_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <memory>
#include <utility>

#include "lockstep/os/fd.h"
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

bool is_fault(int status) {  // a sanitizer ends the process itself
  return ::testing::KilledBySignal(SIGSEGV)(status) ||
         (reference::SANITIZED && WIFEXITED(status) && WEXITSTATUS(status) != 0);
}

void touch(const std::byte* place) { static_cast<void>(*const_cast<const volatile std::byte*>(place)); }

// Two mappings of one file: what two processes have.
class CommonPages : public ::testing::Test {
 protected:
  static constexpr std::size_t BYTES = 4 * PAGE;
  std::shared_ptr<void> map() {
    void* const memory = mmap(nullptr, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
    EXPECT_NE(memory, MAP_FAILED);
    return {memory, [](void* mapped) { munmap(mapped, BYTES); }};
  }
  std::size_t pages_in_file() const {
    struct stat status {};
    fstat(file_.get(), &status);
    return static_cast<std::size_t>(status.st_blocks) * 512 / PAGE;
  }
  Fd file_ = [] {
    Fd file(memfd_create("pages", MFD_CLOEXEC));
    EXPECT_EQ(ftruncate(file.get(), BYTES), 0);
    return file;
  }();
};
using ReservedCommonMemory = CommonPages;

TEST_F(ReservedCommonMemory, PagesAreSeenByAllAndGoForAll) {
  ReservedMemory mine(map(), 3 * PAGE);
  ReservedMemory theirs(map(), 3 * PAGE);
  mine.admit(0, 2 * PAGE);
  theirs.admit(0, 2 * PAGE);
  mine.data()[0] = std::byte{1};
  mine.data()[PAGE] = std::byte{2};
  EXPECT_EQ(theirs.data()[PAGE], std::byte{2});
  mine.hide(0, PAGE);
  EXPECT_EQ(theirs.data()[0], std::byte{1});
  mine.admit(0, PAGE);
  EXPECT_EQ(mine.data()[0], std::byte{1});
  EXPECT_EQ(pages_in_file(), 2U);
  theirs.hide(PAGE, 2 * PAGE);
  mine.discard(PAGE, 2 * PAGE);
  EXPECT_EQ(pages_in_file(), 1U);
  theirs.admit(PAGE, 2 * PAGE);
  EXPECT_EQ(theirs.data()[PAGE], std::byte{0});
}

TEST_F(ReservedCommonMemory, GoesBackAsItCameUnlessItWasReplaced) {
  std::shared_ptr<void> common = map();
  const std::weak_ptr<void> alive = common;
  { const ReservedMemory memory(common, 3 * PAGE); }
  *static_cast<std::byte*>(common.get()) = std::byte{3};
  ReservedMemory other(map(), 3 * PAGE);
  other.admit(0, PAGE);
  {
    ReservedMemory memory(std::move(common), 3 * PAGE);
    memory.replace(0, PAGE);
    EXPECT_EQ(memory.data()[0], std::byte{0});
    memory.data()[0] = std::byte{4};
    EXPECT_EQ(other.data()[0], std::byte{3});
  }
  EXPECT_FALSE(alive.expired());
}

TEST_F(ReservedCommonMemory, BeginsWithItsFirstWholePage) {
  const std::shared_ptr<void> common = map();
  auto* const begin = static_cast<std::byte*>(common.get());
  const ReservedMemory memory(std::shared_ptr<void>(common, begin + 64), 3 * PAGE);
  EXPECT_EQ(memory.data(), begin + PAGE);
}

using ReservedCommonMemoryDeathTest = CommonPages;
TEST_F(ReservedCommonMemoryDeathTest, ATouchOfAHiddenPageIsAFault) {
  ReservedMemory memory(map(), 3 * PAGE);
  EXPECT_EXIT(touch(memory.data()), is_fault, "");
  memory.admit(0, PAGE);
  touch(memory.data());
  memory.hide(0, PAGE);
  EXPECT_EXIT(touch(memory.data()), is_fault, "");
}

TEST(ReservedMemoryDeathTest, ATouchOfAPageThatIsNotThereIsAFault) {
  ReservedMemory memory(2 * PAGE);
  memory.admit(0, 2 * PAGE);
  memory.data()[0] = std::byte{1};
  memory.discard(0, PAGE);
  EXPECT_EXIT(touch(memory.data()), is_fault, "");
}

}  // namespace
}  // namespace lockstep
