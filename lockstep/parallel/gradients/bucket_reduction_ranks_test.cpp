#include "lockstep/parallel/gradients/bucket_reduction.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/tensor/collectives.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

// Three parameters in buckets of their own; their elements are rank + 1, 10 and 100 times that.
struct ThreeBuckets {
  explicit ThreeBuckets(ProcessGroup of) : group(std::move(of)) {
    std::vector<at::Tensor> tensors;
    for (const auto& [name, tensor] : named) tensors.push_back(tensor);
    const ParameterClaims claims(tensors);
    store.begin_pass(claims);
    double value = group.rank() + 1;
    for (std::size_t i = 0; i < 3; ++i, value *= 10) {
      tensors[i].mutable_grad() = torch::full_like(tensors[i], value);
      store.take(i, {});
    }
    store.end_pass();
  }
  void expect_means(double scale = 1) const {
    double mean = (group.size() + 1) / 2.0 * scale;
    for (std::size_t i = 0; i < 3; ++i, mean *= 10)
      EXPECT_TRUE(named[i].second.grad().allclose(torch::full({7}, mean))) << i;
  }

  ProcessGroup group;
  NamedTensors named = {{"a", torch::zeros({7}).requires_grad_(true)},
                        {"b", torch::zeros({7}).requires_grad_(true)},
                        {"c", torch::zeros({7}).requires_grad_(true)}};
  BucketStore store{named, group,
                    bucket_plan(sizes_of(named), reverse_order(3), {.first_bytes = 1, .bytes = 1})};
  BucketReduction reduction{store, group, "Three"};
};

RANKS_TEST(BucketReduction, AveragesBucketsInIndexOrder, Ranks(1, 2, 3, 4), EveryBackend()) {
  ThreeBuckets three(world());
  BucketReduction& reduction = three.reduction;
  EXPECT_EQ(reduction.started(), 0u);
  for (int i = 0; i < 3; ++i) reduction.start_next(/*mark=*/0);
  EXPECT_TRUE(reduction.are_all_started());
  EXPECT_THROW(reduction.start_next(0), InternalError);
  EXPECT_THROW(reduction.follow_store(), InternalError);
  reduction.finish();
  EXPECT_EQ(reduction.started(), 0u);
  EXPECT_EQ(reduction.bytes_sent(), 3u * 7 * sizeof(float));
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(reduction.owned(i), (BucketRange{.offset = 0, .count = 7}));
  three.expect_means();
}

RANKS_TEST(BucketReduction, AHookReducesInPlaceOfTheAverage, Ranks(2, 3)) {
  ThreeBuckets three(world());
  std::vector<std::string> seen;
  three.reduction.set_hook(std::make_shared<FunctionHook>("sum", [&](const GradBucket& bucket) -> HookStep {
    seen.push_back(bucket.parts().front().name + (bucket.is_last() ? " last" : ""));
    return {all_reduce(bucket.buffer(), ReduceOp::SUM, bucket.group(), /*async_op=*/true)};
  }));
  EXPECT_EQ(three.reduction.hook()->describe(), "sum");
  for (int i = 0; i < 3; ++i) three.reduction.start_next(0);
  three.reduction.finish();
  EXPECT_THAT(seen, ::testing::ElementsAre("c", "b", "a last"));
  EXPECT_EQ(three.reduction.bytes_sent(), 3u * 7 * sizeof(float));
  three.expect_means(size());
}

}  // namespace
}  // namespace lockstep
