#include "lockstep/os/foreign_memory.h"

#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "lockstep/base/error.h"
#include "lockstep/os/kernel_features.h"
#include "lockstep/os/process.h"
#include "lockstep/os/shared_memory.h"

namespace lockstep {
namespace {

TEST(ForeignMemory, IsFoundByItsNameAndShowsWhatItsOwnerWrites) {
  const auto memory = SharedMemory::create(4096, {.name = "a-test-of-ours"});
  const auto other = SharedMemory::create(4096);
  const Fd twice(dup(memory->fd()));
  memory->reserve(0, 4096);
  const std::vector<Fd> files = open_memory_files(current_pid(), "a-test-of-ours");
  ASSERT_EQ(files.size(), 1U) << "each file once, and no other";
  const ForeignMemory foreign(files[0].get());
  ASSERT_EQ(foreign.bytes().size(), 4096U);
  memory->data()[100] = std::byte{42};
  EXPECT_EQ(foreign.bytes()[100], std::byte{42});
}

TEST(ForeignMemory, OfNobody) { EXPECT_TRUE(open_memory_files(0, "lockstep").empty()); }

TEST(ForeignMemory, RefusesWhatCouldShrink) {
  const Fd file(memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(file.get(), 4096), 0);
  if (kernel_has(KernelFeature::SEALS)) {
    EXPECT_THROW(ForeignMemory(file.get()), SystemError);
  } else {
    EXPECT_EQ(ForeignMemory(file.get()).bytes().size(),
              4096U);  // without seals the file cannot prove its size
  }
}

TEST(ForeignMemory, WhoOnlyLooksDoesNotHave) {
  auto memory = SharedMemory::create(4096, {.name = "lockstep-looked-at"});
  const std::vector<Fd> looking = open_memory_files(current_pid(), "lockstep-looked-at");
  ASSERT_EQ(looking.size(), 1U);
  memory.reset();
  EXPECT_TRUE(open_memory_files(current_pid(), "lockstep-looked-at").empty());
}

}  // namespace
}  // namespace lockstep
