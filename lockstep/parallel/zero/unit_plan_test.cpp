// Which parameters make a unit, and where each lies.
#include "lockstep/parallel/zero/unit_plan.h"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using ::testing::ElementsAre;

TEST(UnitPlan, AUnitEndsWithTheParameterThatFillsIt) {
  const std::vector<std::size_t> bytes = {100, 5000, 30, 20, 9000, 8};
  const UnitPlan plan = unit_plan(bytes, /*unit_bytes=*/5000, /*begin=*/128);
  EXPECT_THAT(plan.units, ElementsAre(UnitSpec{0, 2, 4096, 12288}, UnitSpec{2, 3, 12288, 24576},
                                      UnitSpec{5, 1, 24576, 28672}));
  EXPECT_THAT(plan.begins, ElementsAre(4096, 4224, 12288, 12352, 12416, 24576));
  EXPECT_EQ(plan.bytes, 28672U);
}

TEST(UnitPlan, EachParameterMayBeAUnit) {
  const std::vector<std::size_t> bytes = {64, 64};
  const UnitPlan plan = unit_plan(bytes, /*unit_bytes=*/1, /*begin=*/0);
  EXPECT_THAT(plan.units, ElementsAre(UnitSpec{0, 1, 0, 4096}, UnitSpec{1, 1, 4096, 8192}));
}

}  // namespace
}  // namespace lockstep
