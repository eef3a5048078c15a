#include "lockstep/job/unaveraged_steps.h"

#include <gmock/gmock.h>

#include "lockstep/base/log.h"
#include "lockstep/comm/collectives/all_reduce.h"
#include "lockstep/comm/collectives/barrier.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> lines_of(const std::function<void()>& body) {
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel level, const std::string& line) {
    if (level == LogLevel::WARNING) lines.push_back(line);
  });
  body();
  set_log_sink(nullptr);
  return lines;
}

void steps(std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) note_step("optim::SGD");
}

RANKS_TEST(UnaveragedSteps, AreSaidOnce, Ranks(2), Backends("shm", "tcp")) {
  comm::barrier(world()).wait();
  {
    const Acting acting(Purpose::MEAN);
    float loss = 1;
    comm::all_reduce(world(), std::span(&loss, 1), ReduceOp::AVG).wait();
  }
  const auto words = HasSubstr("rank " + std::to_string(rank()) + " of 2: optim::SGD has taken 10 steps");
  EXPECT_THAT(lines_of([] { steps(STEPS_TO_SAY - 1); }), IsEmpty());
  EXPECT_THAT(lines_of([] { steps(3 * STEPS_TO_SAY); }), ElementsAre(words));
  EXPECT_THAT(lines_of([] { note_shuffled_epoch(true); }), IsEmpty());
}

RANKS_TEST(UnaveragedSteps, AreFoundByASecondEpoch, Ranks(2)) {
  EXPECT_THAT(lines_of([] { note_shuffled_epoch(false); }), IsEmpty());
  EXPECT_THAT(lines_of([] { note_shuffled_epoch(true); }), ElementsAre(HasSubstr("nothing was averaged")));
}

RANKS_TEST(UnaveragedSteps, AreNotSaidWhereTheProgramAverages, Ranks(2)) {
  float gradient = 1;
  comm::all_reduce(world(), std::span(&gradient, 1), ReduceOp::AVG).wait();
  EXPECT_THAT(lines_of([] { steps(3 * STEPS_TO_SAY); }), IsEmpty());
  EXPECT_THAT(lines_of([] { note_shuffled_epoch(true); }), IsEmpty());
}

RANKS_TEST(UnaveragedSteps, AreNotSaidAlone, Ranks(1)) {
  EXPECT_THAT(lines_of([] { steps(3 * STEPS_TO_SAY); }), IsEmpty());
}

}  // namespace
}  // namespace lockstep
