#include "lockstep/comm/backends/segment/segment_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/os/shared_memory.h"

namespace lockstep::shared {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t MIB = std::size_t{1} << 20U;
constexpr std::size_t GIB = std::size_t{1} << 30U;
constexpr std::size_t TIB = std::size_t{1} << 40U;
constexpr std::size_t ALL_ADDRESSES = 128 * TIB;  // of a program on x86-64: 47 bits

// What all ranks map, with the room in front of each that alignment may take.
std::size_t mapped(int ranks, const SegmentPlan& plan) {
  return static_cast<std::size_t>(ranks) * (plan.bytes + 2 * MIB);
}

TEST(SegmentPlan, IsAllMemoryWhereThatFits) {
  for (const int ranks : {1, 2, 8, 63}) {
    const SegmentPlan plan = segment_plan(ranks, {TIB, ALL_ADDRESSES - GIB, NO_LIMIT, false});
    EXPECT_EQ(plan.bytes, TIB);
    EXPECT_EQ(plan.bound, SegmentBound::MEMORY);
    EXPECT_EQ(explain(plan, 0), "");
  }
}

TEST(SegmentPlan, OfManyRanksOnALargeMachineFitsTheAddresses) {
  for (const int ranks : {64, 128, 200, 256, 1024, 4096}) {
    for (const std::size_t memory : {TIB, 4 * TIB, 24 * TIB}) {
      const SegmentPlan plan = segment_plan(ranks, {memory, ALL_ADDRESSES - 10 * GIB, NO_LIMIT, false});
      EXPECT_LE(mapped(ranks, plan), ALL_ADDRESSES / 2) << ranks;
      EXPECT_GE(plan.bytes, 14 * GIB) << ranks;
      EXPECT_EQ(plan.bound, SegmentBound::ADDRESSES) << ranks;
    }
  }
}

TEST(SegmentPlan, KeepsToALimitOfTheAddressSpace) {
  for (const int ranks : {1, 2, 4, 16, 64}) {
    for (const std::size_t left : {256 * MIB, GIB, 39 * GIB}) {
      const SegmentPlan plan = segment_plan(ranks, {64 * GIB, left, NO_LIMIT, true});
      EXPECT_LE(mapped(ranks, plan), left) << ranks;
      EXPECT_LE(static_cast<std::size_t>(ranks) * plan.bytes, left / 2) << ranks;
      EXPECT_GE(plan.bytes, left / static_cast<std::size_t>(5 * ranks)) << ranks;
      EXPECT_EQ(plan.bound, SegmentBound::ADDRESS_LIMIT);
      EXPECT_THAT(explain(plan, 3), HasSubstr("the address space of rank 3 is limited; raise `ulimit -v`"));
    }
  }
}

TEST(SegmentPlan, KeepsToALimitOfTheSizeOfFiles) {
  const SegmentPlan plan = segment_plan(2, {64 * GIB, ALL_ADDRESSES, 100 * MIB + 5, false});
  EXPECT_EQ(plan.bytes, 100 * MIB);
  EXPECT_EQ(plan.bound, SegmentBound::FILE_LIMIT);
  EXPECT_THAT(explain(plan, 1), HasSubstr("files of rank 1 is limited"));
  EXPECT_THAT(explain(plan, 1), HasSubstr("ulimit -f"));
}

TEST(SegmentPlan, OfAllRanksIsTheSmallest) {
  EXPECT_EQ(smallest({{5, {}}, {3, SegmentBound::FILE_LIMIT}, {3, {}}, {9, {}}}), 1U);
}

TEST(SegmentPlan, TravelsAsText) {
  const auto same = SegmentPlan::parse(SegmentPlan{123456, SegmentBound::ADDRESS_LIMIT}.text());
  ASSERT_TRUE(same);
  EXPECT_EQ(same->bytes, 123456U);
  EXPECT_EQ(same->bound, SegmentBound::ADDRESS_LIMIT);
  for (const char* text : {"", "5", "5 ", "x 1", "5 9", "5 1x", "5 -1"})
    EXPECT_FALSE(SegmentPlan::parse(text)) << text;
}

}  // namespace
}  // namespace lockstep::shared
