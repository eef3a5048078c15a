#include "lockstep/comm/backends/shared/part_table.h"

#include <gtest/gtest.h>

#include <array>

namespace lockstep::shared {
namespace {

Parts parts_of(const std::vector<std::size_t>& sizes) {
  static const std::array<std::byte, 1000> DATA{};
  Parts parts;
  for (const std::size_t size : sizes) parts.emplace_back(DATA.data(), size);
  return parts;
}

TEST(PartPlan, PartsFollowTheTableFromTheRankBehindOnEachOnALineOfItsOwn) {
  const PartPlan plan = part_plan(parts_of({130, 10, 5}), 1);
  const std::size_t table = table_bytes(3);
  EXPECT_EQ(plan.entries[2].offset, table);
  EXPECT_EQ(plan.entries[2].bytes, 5);
  EXPECT_EQ(plan.entries[2].behind, table + 5);
  EXPECT_EQ(plan.entries[0].offset, table + LINE);
  EXPECT_EQ(plan.entries[0].bytes, 130);
  EXPECT_EQ(plan.entries[0].behind, table + LINE + 130);
  EXPECT_EQ(plan.bytes, table + LINE + 2 * LINE);
}

TEST(PartPlan, ARanksOwnPartIsInNoBlock) {
  const PartPlan plan = part_plan(parts_of({8, 700}), 1);
  EXPECT_EQ(plan.entries[1].bytes, 0);
  EXPECT_EQ(plan.bytes, table_bytes(2) + LINE);
}

TEST(PartPlan, OfOneRankIsTheTable) { EXPECT_EQ(part_plan(parts_of({8}), 0).bytes, table_bytes(1)); }

}  // namespace
}  // namespace lockstep::shared
