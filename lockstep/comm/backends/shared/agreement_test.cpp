#include "lockstep/comm/backends/shared/agreement.h"

#include <gtest/gtest.h>

#include <array>

#include "testing/group_of_contexts.h"

namespace lockstep::shared {
namespace {

// Rank 0 of three looks for the others' calls of collective 1.
class AgreementOfThree : public ::testing::Test {
 protected:
  void post(int rank, const Call& call) { group_[rank].sequencer().post(call, Placement::NOWHERE, 0, 0); }

  lockstep::testing::GroupOfContexts group_{3};
  Request barrier_;
};

TEST_F(AgreementOfThree, ACollectiveIsPostedOnceTheLastRankHasPosted) {
  Agreement agreement(group_[0], 1, call_of(barrier_));
  post(0, call_of(barrier_));
  post(2, call_of(barrier_));
  EXPECT_TRUE(agreement.has_posted(barrier_, 2));
  EXPECT_FALSE(agreement.has_posted(barrier_, 1));
  EXPECT_FALSE(agreement.all_posted(barrier_));
  post(1, call_of(barrier_));
  EXPECT_TRUE(agreement.all_posted(barrier_));
  EXPECT_FALSE(agreement.disagrees());
}

TEST_F(AgreementOfThree, AnotherCallFailsTheGroupForAll) {
  Agreement agreement(group_[0], 1, call_of(barrier_));
  post(1, {.verb = Verb::ALL_REDUCE, .count = 4});
  post(2, call_of(barrier_));
  EXPECT_FALSE(agreement.has_posted(barrier_, 1));
  EXPECT_TRUE(agreement.disagrees());
  EXPECT_FALSE(agreement.has_posted(barrier_, 2));
  EXPECT_TRUE(group_[1].failed());
  EXPECT_THROW(group_[2].throw_unusable("barrier #1"), Mismatch);
}

TEST_F(AgreementOfThree, AGathererKnowsTheSizesOfTheOthers) {
  std::array<std::byte, 30> memory{};
  Request gather;
  gather.verb = Verb::ALL_GATHER;
  gather.outputs = {std::span(memory).first(10), std::span(memory).subspan(10, 5),
                    std::span(memory).last(15)};
  Agreement agreement(group_[0], 1, call_of(gather));
  post(1, {.verb = Verb::ALL_GATHER, .count = 5});
  post(2, {.verb = Verb::ALL_GATHER, .count = 5});
  EXPECT_TRUE(agreement.has_posted(gather, 1));
  EXPECT_FALSE(agreement.has_posted(gather, 2));
  EXPECT_THROW(group_[0].throw_unusable("all_gather #1"), Mismatch);
}

TEST_F(AgreementOfThree, PartsOfOtherSizesFailTheGroup) {
  Agreement agreement(group_[0], 1, call_of(barrier_));
  post(1, call_of(barrier_));
  EXPECT_TRUE(agreement.check_size(1, 8, 8));
  EXPECT_FALSE(agreement.disagrees());
  EXPECT_FALSE(agreement.check_size(1, 8, 9));
  EXPECT_TRUE(agreement.disagrees());
  EXPECT_TRUE(group_[0].failed());
}

}  // namespace
}  // namespace lockstep::shared
