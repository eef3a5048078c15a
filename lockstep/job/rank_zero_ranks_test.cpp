#include "lockstep/job/rank_zero.h"

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/collectives/broadcast.h"
#include "lockstep/job/job.h"
#include "testing/ranks.h"
#include "testing/sums.h"

namespace lockstep {
namespace {

using harness::sum_of_ranks;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// The same empty path on all ranks. Rank 0 removes it at the end.
std::filesystem::path common_folder() {
  std::string path = "/tmp/lockstep-rank-zero-XXXXXX";
  if (get_rank() == 0 && ::mkdtemp(path.data()) == nullptr) throw std::runtime_error("no folder");
  std::vector<std::uint8_t> bytes(path.begin(), path.end());
  comm::broadcast(world(), std::span(bytes), 0);
  return std::string(bytes.begin(), bytes.end());
}

// The first rank writes a file slowly. Every other rank must find it complete.
void check_order(const std::filesystem::path& file, bool is_first, const RankZeroFirstOptions& options) {
  constexpr std::size_t LINES = 20000;
  constexpr std::string_view LINE = "a line\n";
  const auto turn = [&] {
    std::ofstream out;
    if (is_first) out.open(file);
    for (std::size_t line = 0; is_first && line < LINES; ++line) out << LINE << std::flush;
    return std::filesystem::exists(file) ? std::filesystem::file_size(file) : 0;
  };
  EXPECT_EQ(rank_zero_first(turn, options), LINES * LINE.size()) << "rank " << get_rank();
}

RANKS_TEST(RankZero, RunsFirstAndThenTheOthers, Ranks(1, 2, 3, 4), WithoutGroup()) {
  init_process_group();
  const auto folder = common_folder();
  check_order(folder / "job", rank() == 0, {});
  EXPECT_EQ(sum_of_ranks(), size() * (size() - 1) / 2) << "no rank is a call ahead";
  if (rank() == 0) std::filesystem::remove_all(folder);
}

// NOLINTBEGIN(concurrency-mt-unsafe): no second thread exists yet
RANKS_TEST(RankZero, OfEachMachineRunsFirst, Ranks(2, 3, 4), WithoutGroup()) {
  setenv("LOCAL_RANK", std::to_string(rank() % 2).c_str(), 1);
  setenv("LOCAL_WORLD_SIZE", "2", 1);
  init_process_group();
  const auto folder = common_folder();
  check_order(folder / std::to_string(rank() / 2), rank() % 2 == 0, {.per_machine = true});
  EXPECT_EQ(sum_of_ranks(), size() * (size() - 1) / 2);
  if (rank() == 0) std::filesystem::remove_all(folder);
}
// NOLINTEND(concurrency-mt-unsafe)

RANKS_TEST(RankZero, ItsFailureIsToldToTheOthersWhichDoNotRun, Ranks(1, 2, 3, 4), WithoutGroup()) {
  init_process_group();
  bool has_run = false;
  const auto run = [&] {
    has_run = true;
    throw std::runtime_error("no such server");
  };
  if (rank() == 0) {
    EXPECT_THAT([&] { rank_zero_first(run); },
                ThrowsMessage<std::runtime_error>(HasSubstr("no such server")));
  } else {
    EXPECT_THAT([&] { rank_zero_first(run); },
                ThrowsMessage<Aborted>(HasSubstr("rank 0 came first and failed")));
  }
  EXPECT_EQ(has_run, rank() == 0);
  EXPECT_EQ(sum_of_ranks(), size() * (size() - 1) / 2) << "the world is usable";
}

RANKS_TEST(RankZero, AFailureOfALaterRankIsItsOwn, Ranks(2, 3), WithoutGroup()) {
  init_process_group();
  const auto run = [&] {
    if (rank() == 1) throw std::runtime_error("disk full");
    return rank();
  };
  if (rank() == 1) {
    EXPECT_THROW(rank_zero_first(run), std::runtime_error);
  } else {
    EXPECT_EQ(rank_zero_first(run), rank());
  }
  EXPECT_EQ(sum_of_ranks(), size() * (size() - 1) / 2);
}

RANKS_TEST(RankZero, OnlyMeansOnly, Ranks(1, 2, 3), WithoutGroup()) {
  int calls = 0;
  rank_zero_only([&] { ++calls; });
  EXPECT_EQ(calls, 1) << "before there is a job, each process is rank 0 of its own";
  init_process_group();
  rank_zero_only([&] { ++calls; });
  EXPECT_EQ(calls, rank() == 0 ? 2 : 1);
}

}  // namespace
}  // namespace lockstep
