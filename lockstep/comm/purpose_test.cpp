#include "lockstep/comm/purpose.h"

#include <gmock/gmock.h>

#include <bit>
#include <set>
#include <thread>

#include "lockstep/comm/call.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::int32_t bits(float scale) { return std::bit_cast<std::int32_t>(scale); }

TEST(Purpose, EachButTheProgramsHasWordsOfItsOwn) {
  std::set<std::string_view> words;
  for (int i = 0; i < PURPOSE_COUNT; ++i) words.insert(words_of(static_cast<Purpose>(i)));
  EXPECT_EQ(words.size(), static_cast<std::size_t>(PURPOSE_COUNT));
  std::set<std::string_view> names;
  for (int i = 0; i < PURPOSE_COUNT; ++i) names.insert(name_of(static_cast<Purpose>(i)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(PURPOSE_COUNT));
  EXPECT_EQ(name_of(Purpose::ACCUMULATION), "accumulation");
  EXPECT_EQ(name_of(Purpose::RANK_ZERO_FIRST), "rank_zero_first");
  EXPECT_EQ(words_of(Purpose::PROGRAM), "");
}

TEST(Purpose, TheInnermostScopeOfAThreadCounts) {
  EXPECT_EQ(Acting::current().purpose, Purpose::PROGRAM);
  const Acting outer(Purpose::GRADIENTS, "SimpleCNN", 3);
  {
    const Acting inner(Purpose::CHECKSUM);
    EXPECT_EQ(Acting::current().purpose, Purpose::CHECKSUM);
    EXPECT_EQ(Acting::current().name, nullptr);
    EXPECT_EQ(Acting::current().mark, 0);
  }
  EXPECT_EQ(Acting::current().purpose, Purpose::GRADIENTS);
  EXPECT_EQ(*Acting::current().name, "SimpleCNN");
  EXPECT_EQ(Acting::current().mark, 3);
  std::jthread([] { EXPECT_EQ(Acting::current().purpose, Purpose::PROGRAM); });
}

TEST(Purpose, CallsOfDifferentPartsOrMarksDisagree) {
  const Call program{.verb = Verb::ALL_REDUCE, .count = 4};
  Call gradients = program;
  gradients.purpose = Purpose::GRADIENTS;
  Call later = gradients;
  later.root = 1;
  EXPECT_TRUE(agree(gradients, gradients));
  EXPECT_FALSE(agree(program, gradients));
  EXPECT_FALSE(agree(gradients, later));
  EXPECT_EQ(describe(program), "all_reduce(uint8[4], sum)");
  EXPECT_EQ(
      describe(later),
      "all_reduce(uint8[4], sum) for the gradients of a DistributedDataParallel after 1 forward() that an "
      "exception left");
}

TEST(Purpose, AComparisonOfModelsNamesTheWrapper) {
  Call comparison{
      .verb = Verb::ALL_GATHER, .dtype = DType::INT64, .purpose = Purpose::MODEL_COMPARISON, .count = 1};
  EXPECT_EQ(describe(comparison), "all_gather(int64[1]) for the comparison of models");
  for (const char* wrapper : {"DistributedDataParallel", "ShardedDataParallel", "ZeroRedundancyOptimizer"}) {
    comparison.root = comparison_mark(wrapper);
    EXPECT_EQ(describe(comparison),
              std::string("all_gather(int64[1]) for the comparison of models by ") + wrapper);
  }
  EXPECT_EQ(comparison_mark("SomeWrapper"), 0);
  EXPECT_EQ(words_of_mark(Purpose::MODEL_COMPARISON, 1000), "");
  EXPECT_EQ(words_of_mark(Purpose::MODEL_COMPARISON, -1), "");
}

TEST(Purpose, TheUsualCauseIsSaidWithWhatToDo) {
  const auto cause = [](Purpose mine, Purpose theirs, std::int32_t a = 0, std::int32_t b = 0) {
    return usual_cause(mine, a, theirs, b);
  };
  EXPECT_EQ(cause(Purpose::PROGRAM, Purpose::PROGRAM), "");
  EXPECT_EQ(cause(Purpose::PROGRAM, Purpose::CHECKSUM), "");
  EXPECT_EQ(cause(Purpose::GRADIENTS, Purpose::GRADIENTS), "");
  for (const auto& [mine, theirs] :
       {std::pair(Purpose::GRADIENTS, Purpose::CHECKSUM), std::pair(Purpose::PROGRAM, Purpose::BUFFERS)}) {
    EXPECT_THAT(cause(mine, theirs), HasSubstr("dist::join,"));
    EXPECT_THAT(cause(mine, theirs), HasSubstr("one rank alone"));
  }
  EXPECT_THAT(cause(Purpose::GRADIENTS, Purpose::SYNC_BATCH_NORM_FORWARD),
              HasSubstr("dist::join with throw_on_early_termination"));
  EXPECT_THAT(cause(Purpose::OVERFLOWS, Purpose::OVERFLOWS, bits(8), bits(65536)),
              HasSubstr("(8 and 65536): call load_state_dict()"));
  EXPECT_THAT(cause(Purpose::GRADIENTS, Purpose::GRADIENTS, 0, 2), HasSubstr("0 and 2 forwards"));
  EXPECT_EQ(usual_cause_of_absence(Purpose::PROGRAM), "");
  EXPECT_THAT(usual_cause_of_absence(Purpose::NEW_GROUP), HasSubstr("by every one of its members"));
  EXPECT_THAT(usual_cause_of_absence(Purpose::GRADIENTS), HasSubstr("inputs differ in length"));
}

TEST(Purpose, RanksThatHaveOneModelTakeTheSameBatches) {
  const char* const same = "the ranks that have one model together take the same batches";
  EXPECT_THAT(usual_cause(Purpose::TENSOR_PARALLEL, 0, Purpose::TENSOR_PARALLEL, 0), HasSubstr(same));
  EXPECT_THAT(usual_cause(Purpose::PROGRAM, 0, Purpose::PIPELINE, 0), HasSubstr(same));
  EXPECT_THAT(usual_cause(Purpose::GRADIENT_NORM, 0, Purpose::CONTEXT_PARALLEL, 0), HasSubstr(same));
  EXPECT_THAT(usual_cause_of_absence(Purpose::PIPELINE), HasSubstr(same));
  EXPECT_THAT(usual_cause(Purpose::PIPELINE, 0, Purpose::CHECKPOINT, 0), HasSubstr("save_checkpoint()"));
}

// Marks from 16 on are units of parameters.
TEST(Purpose, AReadOfOneRankAloneIsSaid) {
  EXPECT_EQ(words_of_mark(Purpose::SHARDED_STEP, 18), "to gather unit 2 of its parameters");
  EXPECT_EQ(words_of_mark(Purpose::SHARDED_STEP, 1), "");
  const char* const alone = "one rank alone read parameters of a ShardedDataParallel in stage 3";
  EXPECT_THAT(usual_cause(Purpose::PROGRAM, 0, Purpose::SHARDED_STEP, 18), HasSubstr(alone));
  EXPECT_THAT(usual_cause(Purpose::SHARDED_STEP, 16, Purpose::PROGRAM, 0), HasSubstr(alone));
  EXPECT_THAT(usual_cause(Purpose::SHARDED_STEP, 1, Purpose::PROGRAM, 0), Not(HasSubstr(alone)));
  EXPECT_THAT(usual_cause(Purpose::SHARDED_STEP, 1, Purpose::SHARDED_STEP, 18),
              HasSubstr("read the same parameters in the same order"));
  EXPECT_THAT(usual_cause_of_absence(Purpose::SHARDED_STEP), HasSubstr(alone));
}

}  // namespace
}  // namespace lockstep
