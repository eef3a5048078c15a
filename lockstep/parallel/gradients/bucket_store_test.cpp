#include "lockstep/parallel/gradients/bucket_store.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "testing/fake_ddp.h"

namespace lockstep {
namespace {

using testing::fake_group;

// Two parameters of four and two elements, each in a bucket of its own unless `caps` says otherwise.
struct TwoParameters {
  explicit TwoParameters(const BucketCaps& caps = {.first_bytes = 1, .bytes = 1})
      : store(named, ProcessGroup(fake_group()), bucket_plan(sizes_of(named), reverse_order(2), caps)) {}

  void give(std::size_t parameter, double value) {
    tensors[parameter].mutable_grad() = torch::full_like(tensors[parameter], value);
    store.take(parameter, {});
  }
  at::Tensor held(std::size_t parameter) const { return store.slot(parameter).alias(); }

  std::vector<at::Tensor> tensors = {torch::zeros({4}).requires_grad_(true),
                                     torch::zeros({2}).requires_grad_(true)};
  NamedTensors named = {{"four", tensors[0]}, {"two", tensors[1]}};
  ParameterClaims claims{tensors};
  BucketStore store;
};

TEST(BucketStore, AGradientLiesInItsBucketAndIsItsParametersGrad) {
  TwoParameters two;
  EXPECT_EQ(two.store.buckets(), 2u);
  EXPECT_EQ(two.store.table(), "#0 float32 8 bytes: two\n#1 float32 16 bytes: four\n");
  EXPECT_EQ(two.store.bytes(), 24u);
  two.store.begin_pass(two.claims);
  two.give(0, 3);
  two.store.end_pass();
  EXPECT_TRUE(two.store.flat(1).equal(torch::full({4}, 3.0)));
  EXPECT_EQ(two.tensors[0].grad().data_ptr(), two.store.flat(1).data_ptr());
  EXPECT_EQ(two.store.bytes_copied(), 16u);
  two.store.flat(1).fill_(5);
  two.store.settle(0, true);
  EXPECT_TRUE(two.tensors[0].grad().equal(torch::full({4}, 5.0)));
}

TEST(BucketStore, AParameterThatIsLeftOutContributesWhatItHadAndKeepsItUnlessSomeRankUsedIt) {
  for (const bool used : {false, true}) {
    TwoParameters two;
    two.store.begin_pass(two.claims);
    two.give(0, 3);
    two.store.settle(0, true);
    two.store.begin_pass(two.claims);
    two.store.leave_out(0);
    two.store.leave_out(1);
    two.store.end_pass();
    EXPECT_TRUE(two.held(0).equal(torch::full({4}, 3.0)));
    EXPECT_TRUE(two.held(1).equal(torch::zeros({2})));
    two.store.scale(2);
    two.store.settle(0, used);
    two.store.settle(1, used);
    EXPECT_TRUE(two.tensors[0].grad().equal(torch::full({4}, used ? 6.0 : 3.0))) << used;
    EXPECT_EQ(two.tensors[1].grad().defined(), used);
  }
}

TEST(BucketStore, ABucketMovesAwayFromAGradThatIsKept) {
  TwoParameters two;
  two.store.begin_pass(two.claims);
  two.give(0, 3);
  two.give(1, 4);
  two.store.end_pass();
  const at::Tensor kept = two.tensors[0].grad();
  const void* const other = two.store.flat(0).data_ptr();
  two.tensors[0].mutable_grad().reset();
  two.store.begin_pass(two.claims);
  two.give(0, 7);
  two.store.end_pass();
  EXPECT_TRUE(kept.equal(torch::full({4}, 3.0)));
  EXPECT_TRUE(two.store.flat(1).equal(torch::full({4}, 7.0)));
  EXPECT_EQ(two.store.flat(0).data_ptr(), other);
}

TEST(BucketStore, GradientsKeepTheirValuesInOtherBuckets) {
  TwoParameters two;
  two.store.begin_pass(two.claims);
  two.give(0, 3);
  two.give(1, 4);
  two.store.end_pass();
  two.store.follow(bucket_plan(sizes_of(two.named), std::vector<std::size_t>{0, 1}, {}));
  EXPECT_EQ(two.store.buckets(), 1u);
  EXPECT_EQ(two.store.table(), "#0 float32 72 bytes: four two\n");
  EXPECT_EQ(two.store.bucket_of(), (std::vector<std::size_t>{0, 0}));
  EXPECT_TRUE(two.tensors[0].grad().equal(torch::full({4}, 3.0)));
  EXPECT_TRUE(two.tensors[1].grad().equal(torch::full({2}, 4.0)));
  EXPECT_EQ(two.tensors[0].grad().data_ptr(), two.store.flat(0).data_ptr());
}

TEST(BucketStore, DropsGradientsAndZeroesThoseThatTheProgramHolds) {
  TwoParameters two;
  const at::Tensor own = torch::ones({4});
  two.tensors[0].mutable_grad() = own;
  two.tensors[1].mutable_grad() = torch::ones({2});
  two.store.drop_gradients();
  EXPECT_TRUE(own.equal(torch::zeros({4})));
  EXPECT_TRUE(two.tensors[0].grad().is_same(own));
  EXPECT_FALSE(two.tensors[1].grad().defined());
}

// A sharded bucket is longer than its gradients; the padding stays zero.
TEST(BucketStore, PadsForShards) {
  const TwoParameters two;
  BucketStore store(two.named, ProcessGroup(fake_group()),
                    bucket_plan(sizes_of(two.named), reverse_order(2), {}, /*shards=*/2));
  ASSERT_EQ(store.buckets(), 1u);
  EXPECT_EQ(store.flat(0).numel(), 32);
  EXPECT_EQ(shard_of(store.plan()[0], 1), (BucketRange{.offset = 16, .count = 16}));
  EXPECT_TRUE(store.flat(0).equal(torch::zeros({32})));
}

}  // namespace
}  // namespace lockstep
