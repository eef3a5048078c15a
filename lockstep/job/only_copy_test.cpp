#include "lockstep/job/only_copy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/os/shared_memory.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(OnlyCopy, TheSecondCopyIsRefusedAndTheFirstJoinsAgain) {
  {
    const auto mark_of_another = SharedMemory::create(1, {.name = COPY_MARK, .huge_pages = false});
    EXPECT_THAT(
        [] { refuse_second_copy("init_process_group"); },
        ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("init_process_group: another copy of Lockstep"),
                                             HasSubstr("lockstep::core_shared"))));
  }
  refuse_second_copy("init_process_group");
  refuse_second_copy("connect");
}

}  // namespace
}  // namespace lockstep
