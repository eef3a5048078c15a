#include "lockstep/os/open_files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/os/child_process.h"
#include "lockstep/os/fd.h"
#include "lockstep/os/pipe.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The result of `body` in a process with these limits.
template <typename Body> int with_limits(rlim_t soft, rlim_t hard, Body body) {
  const pid_t child = fork_child([&] {
    const rlimit limit{soft, hard};
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return 99;
    return body();
  });
  return wait_exit(child).shell_code();
}

TEST(OpenFiles, SoftLimitIsLeftAloneWhereThereIsRoom) {
  EXPECT_EQ(soft_limit_for({10, 1024, 4096}, 100), 1024U);
  EXPECT_EQ(soft_limit_for({10, 1024, 1024}, 1014), 1024U) << "the last one fits";
}

TEST(OpenFiles, SoftLimitGrowsByWhatIsNeededSoThatTheProgramKeepsItsRoom) {
  EXPECT_EQ(soft_limit_for({10, 1024, 524288}, 1500), 2524U);
  EXPECT_EQ(soft_limit_for({10, 1024, 2000}, 1500), 2000U) << "but not beyond the hard limit";
}

TEST(OpenFiles, TooSmallAHardLimitHasNoAnswer) {
  EXPECT_EQ(soft_limit_for({10, 1024, 1024}, 1015), 0U);
  EXPECT_EQ(soft_limit_for({10, 64, 64}, 192), 0U);
}

TEST(OpenFiles, AreCounted) {
  const OpenFiles before = open_files();
  std::vector<Fd> more;
  for (int i = 0; i < 7; ++i) more.emplace_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(open_files().open, before.open + 7);
}

TEST(OpenFiles, RoomIsMadeWithinTheHardLimit) {
  EXPECT_EQ(with_limits(64, 512,
                        [] {
                          make_room_for_files(200, "the test");
                          std::vector<Fd> files;
                          for (int i = 0; i < 200; ++i) {
                            files.emplace_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
                            if (!files.back().valid()) return 1;
                          }
                          return open_files().soft == 264 ? 0 : 2;
                        }),
            0);
}

TEST(OpenFiles, TooFewSayHowManyAreNeededAndHowToGetThem) {
  EXPECT_EQ(with_limits(32, 64,
                        [] {
                          try {
                            make_room_for_files(200, "init_process_group, rank 3 of 64");
                          } catch (const SystemError& error) {
                            const auto is_told =
                                AllOf(HasSubstr("init_process_group, rank 3 of 64 needs 200 more open files"),
                                      HasSubstr("hard limit is 64"), HasSubstr("ulimit -Hn"));
                            const bool is_right = ::testing::Matches(is_told)(std::string(error.what()));
                            return is_right && error.error_number() == EMFILE && open_files().soft == 32 ? 0
                                                                                                         : 2;
                          }
                          return 1;
                        }),
            0);
}

TEST(OpenFiles, WhatIsStartedAfterwardsHasTheLimitFromBefore) {
  EXPECT_EQ(with_limits(64, 512,
                        [] {
                          make_room_for_files(200, "the test");
                          Pipe output = make_pipe();
                          SpawnRequest request;
                          request.executable = "/bin/sh";
                          request.arguments = {"sh", "-c", "ulimit -n"};
                          request.standard_output = output.write.get();
                          const ChildProcess child = spawn(request);
                          output.write.reset();
                          std::string text;
                          while (read_available(output.read.get(), text) != ReadResult::END) {
                          }
                          wait_exit(child.pid);
                          return text == "64\n" ? 0 : 1;
                        }),
            0);
}

}  // namespace
}  // namespace lockstep
