#include "lockstep/job/connect.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/all_reduce.h"
#include "lockstep/job/job.h"
#include "lockstep/store/file_store.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A file that the ranks of one test share. Its name has the process that started them, which runs only these
// ranks and one test at a time.
class SharedFile {
 public:
  explicit SharedFile(int rank) : rank_(rank) {
    const auto* const test = ::testing::UnitTest::GetInstance()->current_test_info();
    std::string name =
        str("connect_test_", *env("LOCKSTEP_JOB_ID"), "_", test->test_suite_name(), "_", test->name());
    std::replace(name.begin(), name.end(), '/', '_');
    path_ = std::filesystem::temp_directory_path() / name;
  }
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;
  // Rank 0 has met the other ranks by then, and they keep their open files.
  ~SharedFile() {
    std::error_code ignored;
    if (rank_ == 0) std::filesystem::remove(path_, ignored);
  }

  std::shared_ptr<Store> store() const { return std::make_shared<FileStore>(path_); }

 private:
  const int rank_;
  std::filesystem::path path_;
};

// Sums rank + 1 over `size` ranks.
void expect_sum(const ProcessGroup& group, int size) {
  std::vector<int> mine = {group.rank() + 1};
  comm::all_reduce(group, std::span(mine));
  EXPECT_EQ(mine[0], size * (size + 1) / 2);
}

RANKS_TEST(Connect, MakesAGroupWithoutAJob, Ranks(1, 2, 3, 4), Backends("shm", "tcp"), WithoutGroup()) {
  const SharedFile file(rank());
  const ProcessGroup group =
      connect(file.store(), rank(), size(), {.name = "first", .backend = backend_name()});
  EXPECT_EQ(group.name(), "first");
  EXPECT_EQ(group.backend_name(), backend_name());
  expect_sum(group, size());
  EXPECT_FALSE(is_initialized());
  group.close();
}

RANKS_TEST(Connect, AutoIsSharedMemoryOnOneMachine, Ranks(1, 3), WithoutGroup()) {
  const SharedFile file(rank());
  const ProcessGroup group = connect(file.store(), rank(), size());
  EXPECT_EQ(group.backend_name(), size() == 1 ? "self" : "shm");
  expect_sum(group, size());
  group.close();
}

RANKS_TEST(Connect, BesideTheJobWithOtherNumbers, Ranks(2, 3), Backends("shm", "tcp")) {
  const SharedFile file(rank());
  const int other = size() - 1 - rank();
  const ProcessGroup group = connect(file.store(), other, size(), {.name = "reversed"});
  EXPECT_EQ(group.rank(), other);
  expect_sum(group, size());
  expect_sum(world(), size());
  group.close();
  expect_sum(world(), size());  // the job's world is a separate group
}

RANKS_TEST(Connect, TwoThreadsConnectTwoGroupsAtOnce, Ranks(2, 3), WithoutGroup()) {
  const SharedFile file(rank());
  const auto one = [&](const char* name) {
    const ProcessGroup group = connect(file.store(), rank(), size(), {.name = name});
    for (int i = 0; i < 100; ++i) expect_sum(group, size());
    group.close();
  };
  std::jthread first(one, "of thread 1");
  std::jthread second(one, "of thread 2");
}

RANKS_TEST(Connect, SomeOfTheRanksAlone, Ranks(3), WithoutGroup()) {
  const SharedFile file(rank());
  if (rank() == 1) return;  // the two other ranks make a group that it does not know
  const ProcessGroup group = connect(file.store(), rank() / 2, 2, {.name = "outer"});
  expect_sum(group, 2);
  group.close();
}

RANKS_TEST(Connect, NamesTheRankThatDoesNotCome, Ranks(2), WithoutGroup()) {
  const SharedFile file(rank());
  if (rank() == 1) return;
  try {
    connect(file.store(), 0, 2, {.timeout = std::chrono::milliseconds(500)});
    ADD_FAILURE() << "it did not throw";
  } catch (const Timeout& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("connect, group \"group\""), HasSubstr("rank(s) 1 did not come")));
  }
}

RANKS_TEST(Connect, RefusesAnotherBackendOnAllRanks, Ranks(2, 3), WithoutGroup()) {
  const SharedFile file(rank());
  try {
    connect(file.store(), rank(), size(), {.backend = rank() == 0 ? "tcp" : "auto"});
    ADD_FAILURE() << "it did not throw";
  } catch (const Mismatch& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("connect, group \"group\": rank 0 asks for backend \"tcp\""),
                                    HasSubstr("for \"auto\"")));
  }
}

// The second rank gets the error. The first waits for a rank that does not come.
RANKS_TEST(Connect, RefusesAnotherSize, Ranks(2), WithoutGroup()) {
  const SharedFile file(rank());
  try {
    connect(file.store(), rank(), rank() == 0 ? 2 : 3, {.timeout = std::chrono::milliseconds(500)});
    ADD_FAILURE() << "it did not throw";
  } catch (const Mismatch& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("2 ranks"), HasSubstr("3 ranks")));
  } catch (const Timeout& error) {
    EXPECT_THAT(error.what(), HasSubstr("did not come"));
  }
}

RANKS_TEST(Connect, RefusesArgumentsThatCannotBe, Ranks(1), WithoutGroup()) {
  const SharedFile file(rank());
  EXPECT_THROW(connect(nullptr, 0, 1), InvalidArgument);
  EXPECT_THROW(connect(file.store(), 1, 1), InvalidArgument);
  EXPECT_THROW(connect(file.store(), -1, 2), InvalidArgument);
  EXPECT_THROW(connect(file.store(), 0, 2, {.backend = "self"}), InvalidArgument);
  EXPECT_THROW(connect(file.store(), 0, 1, {.backend = "carrier pigeons"}), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
