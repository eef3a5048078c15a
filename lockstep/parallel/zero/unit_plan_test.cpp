// Which parameters make a unit, which ones stay, and where each lies.
#include "lockstep/parallel/zero/unit_plan.h"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Of four bytes each.
std::vector<UnitParameter> of_elements(const std::vector<std::size_t>& elements) {
  std::vector<UnitParameter> parameters;
  for (const std::size_t count : elements) parameters.push_back({count, 4 * count});
  return parameters;
}

TEST(UnitPlan, AUnitEndsWithTheParameterThatFillsIt) {
  const UnitPlan plan =
      unit_plan(of_elements({25, 1250, 8, 5, 2250, 2}), {.unit_bytes = 5000}, /*begin=*/128);
  EXPECT_EQ(plan.resident_end, 4096U);
  EXPECT_THAT(plan.units,
              ElementsAre(UnitSpec{{0, 1}, 1275, 4096, 12288}, UnitSpec{{2, 3, 4}, 2263, 12288, 24576},
                          UnitSpec{{5}, 2, 24576, 28672}));
  EXPECT_THAT(plan.begins, ElementsAre(4096, 4224, 12288, 12352, 12416, 24576));
  EXPECT_EQ(plan.bytes, 28672U);
}

TEST(UnitPlan, EachParameterMayBeAUnit) {
  const UnitPlan plan = unit_plan(of_elements({16, 16}), {.unit_bytes = 1}, /*begin=*/0);
  EXPECT_THAT(plan.units, ElementsAre(UnitSpec{{0}, 16, 0, 4096}, UnitSpec{{1}, 16, 4096, 8192}));
}

TEST(UnitPlan, SmallParametersStay) {
  const UnitPlan plan = unit_plan(of_elements({16, 100, 17, 200}),
                                  {.unit_bytes = 800, .persistence_threshold = 17}, /*begin=*/64);
  EXPECT_THAT(plan.begins, ElementsAre(64, 4096, 128, 4544));
  EXPECT_THAT(plan.units, ElementsAre(UnitSpec{{1, 3}, 300, 4096, 8192}));
  EXPECT_FALSE(plan.is_gathered(2));
  EXPECT_TRUE(plan.is_gathered(3));
}

// 30 elements may stay: the second parameter would be too many, the third is not.
TEST(UnitPlan, AsManyStayAsTheModelMayKeep) {
  const UnitPlan plan = unit_plan(
      of_elements({20, 20, 10}),
      {.unit_bytes = 1, .persistence_threshold = 20, .model_persistence_threshold = 30}, /*begin=*/0);
  EXPECT_THAT(plan.units, ElementsAre(UnitSpec{{1}, 20, 4096, 8192}));
}

TEST(UnitPlan, AllMayStay) {
  const UnitPlan plan = unit_plan(of_elements({20, 20}), {.unit_bytes = 1, .persistence_threshold = 20}, 0);
  EXPECT_THAT(plan.units, IsEmpty());
  EXPECT_EQ(plan.bytes, 4096U);
}

}  // namespace
}  // namespace lockstep
