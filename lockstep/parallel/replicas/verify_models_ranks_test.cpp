#include "lockstep/parallel/replicas/verify_models.h"

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

constexpr Wrapper DISTRIBUTED{"DistributedDataParallel"};
constexpr Wrapper SHARDED{"ShardedDataParallel"};

RANKS_TEST(VerifyModels, AnotherModelOnARankIsAMismatchThatNamesTheWrapper, Ranks(2, 3, 4)) {
  EXPECT_NO_THROW(verify_same_model(SHARDED, describe_model({}, {}, "stage=1"), world()));
  const std::string options = lockstep::str("stage=", rank() == size() - 1 ? 2 : 1);
  EXPECT_THAT([&] { verify_same_model(SHARDED, describe_model({}, {}, options), world()); },
              ThrowsMessage<Mismatch>(AllOf(HasSubstr("ShardedDataParallel on group"),
                                            HasSubstr("is stage=1 on rank 0 but stage=2 on rank"),
                                            Not(HasSubstr("DistributedDataParallel")))));
}

RANKS_TEST(VerifyModels, AnotherWrapperOnARankIsAMismatchThatNamesBoth, Ranks(2, 3, 4)) {
  const Wrapper& mine = rank() == 0 ? DISTRIBUTED : SHARDED;
  EXPECT_THAT([&] { verify_same_model(mine, describe_model({}, {}, ""), world()); },
              ThrowsMessage<Mismatch>(
                  AllOf(HasSubstr("rank 0 called all_gather(int64[1]) for the comparison of models by "
                                  "DistributedDataParallel"),
                        HasSubstr("called all_gather(int64[1]) for the comparison of models by "
                                  "ShardedDataParallel"))));
}

}  // namespace
}  // namespace lockstep
