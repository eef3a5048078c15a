// Who came last, and why: one rank is made slow by far more than what machines do to ranks by themselves.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <chrono>
#include <thread>

#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

constexpr std::chrono::milliseconds LATE{600};
constexpr double LATE_SECONDS = 0.6;

enum class Where { BETWEEN, FORWARD, BACKWARD };

struct StatsTrial {
  torch::Tensor w = torch::ones({3}, torch::requires_grad());
  torch::Tensor v = torch::ones({3}, torch::requires_grad());
  DistributedDataParallel<void> ddp;
  explicit StatsTrial(const ProcessGroup& group)
      : ddp(NamedTensors{{"w", w}, {"v", v}}, {}, {.process_group = group, .bucket_cap_mb = 1e-6}) {
    w.register_hook([this](const torch::Tensor&) { sleep_in(Where::BACKWARD); });
  }
  void sleep_in(Where here) const {
    if (slow && *slow == here) std::this_thread::sleep_for(LATE);
  }
  void step() {
    sleep_in(Where::BETWEEN);
    const auto loss = ddp.forward([&] {
      sleep_in(Where::FORWARD);
      return ((w * 2) * v).sum();
    });
    loss.backward();
  }
  std::optional<Where> slow;
};

RANKS_TEST(DdpStats, NameTheRankThatCameLastAndThePhaseThatMadeIt, Ranks(2, 3)) {
  StatsTrial trial(world());
  trial.step();
  const std::vector<std::pair<Where, std::string>> phases = {{Where::BETWEEN, "its time between steps took"},
                                                             {Where::FORWARD, "its forward took"},
                                                             {Where::BACKWARD, "its backward took"}};
  for (const auto& [where, words] : phases) {
    if (rank() == size() - 1) trial.slow = where;
    trial.step();
    const RankTimes times = trial.ddp.compare_ranks();
    ASSERT_EQ(times.ranks.size(), static_cast<std::size_t>(size()));
    EXPECT_EQ(times.last_to_arrive(), static_cast<std::size_t>(size() - 1));
    EXPECT_GE(times.ranks[0].waited, LATE_SECONDS / 2);
    EXPECT_THAT(to_string(times), HasSubstr("rank " + std::to_string(size() - 1) + " came last"));
    EXPECT_THAT(to_string(times), HasSubstr(words));
  }
}

RANKS_TEST(DdpStats, PartsOfAStepFitTogether, Ranks(1, 2, 3)) {
  StatsTrial trial(world());
  for (int step = 0; step < 3; ++step) trial.step();
  const StepTimes times = trial.ddp.stats().last_step;
  for (const double part : {times.between, times.forward, times.backward, times.communication})
    EXPECT_GT(part, 0);
  EXPECT_LE(times.waited, times.exposed);
  EXPECT_LE(times.exposed, times.communication * 1.000001);
  EXPECT_LE(times.communication, (times.backward + times.waited) * 1.000001);
}

}  // namespace
}  // namespace lockstep
