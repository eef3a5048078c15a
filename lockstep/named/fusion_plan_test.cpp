// Plans of fused buffers as pictures, and that every name is in a plan once.
#include "lockstep/named/fusion_plan.h"

#include <gtest/gtest.h>

namespace lockstep::named {
namespace fusion_plan_test {
namespace {

Response ready(const std::string& name, std::int64_t count, DType dtype = DType::FLOAT32, Op op = Op::SUM) {
  Request request{.kind = Kind::ALLREDUCE, .name = name, .dtype = dtype, .op = op};
  request.shape = {count};
  Response response;
  response.agreement = std::make_shared<Agreement>(Agreement{{std::make_shared<Request>(request)}});
  return response;
}

TEST(FusionPlan, PadsEachNameTo64Bytes) {
  EXPECT_EQ(to_text(fusion_plan({ready("a", 1), ready("b", 17), ready("c", 16)}, 1000)),
            "0: allreduce \"a\" at 0, \"b\" at 64, \"c\" at 192\n");
}

TEST(FusionPlan, EndsABatchAtTheThreshold) {
  EXPECT_EQ(to_text(fusion_plan(
                {ready("a", 16), ready("b", 16), ready("c", 16), ready("d", 100), ready("e", 1)}, 128)),
            "0: allreduce \"a\" at 0, \"b\" at 64\n"
            "1: allreduce \"c\" at 0\n"
            "2: allreduce \"d\" at 0\n"
            "3: allreduce \"e\" at 0\n");
}

TEST(FusionPlan, PutsOnlyEqualKindsTogether) {
  std::vector<Response> all = {ready("a", 1),
                               ready("b", 1, DType::FLOAT16),
                               ready("c", 1, DType::FLOAT32, Op::MAX),
                               ready("d", 1),
                               ready("e", 1, DType::FLOAT16),
                               ready("f", 1, DType::FLOAT32, Op::ADASUM),
                               ready("g", 1, DType::FLOAT32, Op::ADASUM)};
  EXPECT_EQ(to_text(fusion_plan(all, 1 << 20)),
            "0: allreduce \"a\" at 0, \"d\" at 64\n"
            "1: allreduce \"b\" at 0, \"e\" at 64\n"
            "2: allreduce \"c\" at 0\n"
            "3: allreduce \"f\" at 0\n"
            "4: allreduce \"g\" at 0\n");
}

TEST(FusionPlan, FusesNothingWithAThresholdOf0) {
  EXPECT_EQ(fusion_plan({ready("a", 1), ready("b", 1)}, 0).size(), 2U);
}

TEST(FusionPlan, LeavesMismatchesAlone) {
  Response wrong = ready("b", 1);
  wrong.result = Response::Result::MISMATCH;
  const auto plan = fusion_plan({ready("a", 1), wrong, ready("c", 1)}, 1000);
  EXPECT_EQ(to_text(plan), "0: allreduce \"a\" at 0, \"c\" at 64\n1: allreduce \"b\" at 0\n");
}

}  // namespace
}  // namespace fusion_plan_test
}  // namespace lockstep::named
