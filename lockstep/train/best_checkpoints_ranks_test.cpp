// The checkpoints that stay in a folder are the best by the metric of all ranks, also after a restart.
#include "lockstep/train/best_checkpoints.h"

#include <ATen/ops/full.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/load_checkpoint.h"
#include "lockstep/checkpoint/save_checkpoint.h"
#include "lockstep/comm/collectives/barrier.h"
#include "lockstep/job/job.h"
#include "testing/ranks.h"
#include "testing/shared_folder.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::set<std::string> checkpoints_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().filename().string().starts_with("step-")) names.insert(entry.path().filename());
  return names;
}

RANKS_TEST(BestCheckpoints, StayInTheFolder, Ranks(1, 2, 3, 4)) {
  const testing::SharedFolder folder(world());
  // Over the ranks the mean is the metric itself: rank r adds r - (n - 1) / 2.
  const double mine = rank() - (size() - 1) / 2.0;
  const double metrics[] = {3, 1, 4, 1.5, 5, 0.5};
  const at::Tensor step_of = at::full({1}, -1, at::kLong);
  const auto run = [&](std::int64_t first, std::int64_t end, bool resume) {
    BestCheckpoints best(2);
    CheckpointState state;
    state.add("best", best).add("step", step_of);
    if (resume) load_checkpoint(folder.path(), state);
    for (std::int64_t step = first; step < end; ++step) {
      step_of.fill_(step);
      const auto keep = best.add(step, metrics[step] + mine);
      save_checkpoint(folder.path(), state, {.step = step, .keep_last = 1, .keep_steps = keep});
    }
    return best.scored_steps();
  };
  run(0, 3, /*resume=*/false);
  comm::barrier(world()).wait();
  EXPECT_THAT(checkpoints_in(folder.path()),
              ElementsAre("step-000000000000", "step-000000000001", "step-000000000002"));
  EXPECT_THAT(run(3, 5, /*resume=*/true), ElementsAre(ScoredStep{1, 1}, ScoredStep{3, 1.5}));
  comm::barrier(world()).wait();
  EXPECT_THAT(checkpoints_in(folder.path()),
              ElementsAre("step-000000000001", "step-000000000003", "step-000000000004"));
  EXPECT_THAT(run(5, 6, /*resume=*/true), ElementsAre(ScoredStep{5, 0.5}, ScoredStep{1, 1}));
  comm::barrier(world()).wait();
  EXPECT_THAT(checkpoints_in(folder.path()), ElementsAre("step-000000000001", "step-000000000005"));
  CheckpointState state;
  BestCheckpoints best(2);
  state.add("best", best).add("step", step_of);
  load_checkpoint(folder.path(), state, {.step = 1});
  EXPECT_EQ(step_of.item<std::int64_t>(), 1);
}

RANKS_TEST(BestCheckpoints, AreThoseOfAllRanks, Ranks(1, 2, 3, 4), EveryBackend()) {
  BestCheckpoints best(2, MetricMode::MAX, world());
  for (std::int64_t step = 0; step < 5; ++step) best.add(step, static_cast<double>(step * rank()));
  // The mean over ranks is step * (n - 1) / 2, on one rank always 0.
  const double each = (size() - 1) / 2.0;
  if (size() == 1) {
    EXPECT_THAT(best.steps(), ElementsAre(0, 1));
  } else {
    EXPECT_THAT(best.scored_steps(), ElementsAre(ScoredStep{4, 4 * each}, ScoredStep{3, 3 * each}));
  }
}

RANKS_TEST(BestCheckpoints, RefuseStepsThatDiffer, Ranks(2, 3, 4)) {
  BestCheckpoints best(1);
  EXPECT_THAT([&] { best.add(rank() == 1 ? 7 : 8, 0.5); },
              ThrowsMessage<Mismatch>(HasSubstr("the step is 7 on rank 1 and 8 on rank 0")));
  EXPECT_THAT(best.add(9, 0.5), ElementsAre(9));
}

}  // namespace
}  // namespace lockstep
