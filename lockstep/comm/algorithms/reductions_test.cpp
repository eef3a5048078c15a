// all_reduce, as pictures.
#include <gtest/gtest.h>

#include "lockstep/comm/algorithms/schedule.h"

namespace lockstep::algorithms {
namespace {

TEST(AllReduceSchedule, SmallIsOneStep) {
  EXPECT_EQ(
      to_text(make_schedule({.verb = Verb::ALL_REDUCE, .rank = 1, .size = 3, .element = 4, .count = 20})),
      "step 0\n"
      "  send    input[0,80) -> rank 2\n"
      "  send    input[0,80) -> rank 0\n"
      "  receive rank 2 -> scratch[128,208)\n"
      "  receive rank 0 -> scratch[0,80)\n"
      "  combine scratch[0,80) input[0,80) scratch[128,208) -> output[0,80)\n");
}

TEST(AllReduceSchedule, LargeCombinesAPartAndGathers) {
  EXPECT_EQ(
      to_text(make_schedule({.verb = Verb::ALL_REDUCE, .rank = 0, .size = 3, .element = 1, .count = 98304})),
      "step 0\n"
      "  send    input[32768,65536) -> rank 1\n"
      "  send    input[65536,98304) -> rank 2\n"
      "  receive rank 1 -> scratch[0,32768)\n"
      "  receive rank 2 -> scratch[32768,65536)\n"
      "step 1, early\n"
      "  meanwhile input[0,32768) scratch[0,32768) scratch[32768,65536) -> output[0,32768)\n"
      "step 2, early\n"
      "  send    output[0,32768) -> rank 1\n"
      "  send    output[0,32768) -> rank 2\n"
      "  receive rank 1 -> output[32768,65536)\n"
      "  receive rank 2 -> output[65536,98304)\n");
}

TEST(AllReduceSchedule, TwoRanksExchangeUpToASegmentInOneStep) {
  const auto of_two = [](std::size_t bytes) {
    return make_schedule({.verb = Verb::ALL_REDUCE, .rank = 0, .size = 2, .element = 1, .count = bytes});
  };
  EXPECT_EQ(to_text(of_two(65536)),
            "step 0\n"
            "  send    input[0,65536) -> rank 1\n"
            "  receive rank 1 -> scratch[0,65536)\n"
            "  combine input[0,65536) scratch[0,65536) -> output[0,65536)\n");
  EXPECT_EQ(of_two(SEGMENT).steps.size(), 1U);
  EXPECT_EQ(of_two(SEGMENT + 1).steps.size(),
            4U);  // two segments, and two steps until the second has been gathered
}

TEST(AllReduceSchedule, ScratchIsBoundedHoweverLargeTheBuffer) {
  const Schedule huge = make_schedule(
      {.verb = Verb::ALL_REDUCE, .rank = 0, .size = 4, .element = 4, .count = std::size_t{1} << 32U});
  EXPECT_EQ(huge.scratch_bytes, 3 * SEGMENT);
  EXPECT_EQ(huge.steps.size(), (std::size_t{1} << 34U) / (4 * SEGMENT / 2) + 2);
}

}  // namespace
}  // namespace lockstep::algorithms
