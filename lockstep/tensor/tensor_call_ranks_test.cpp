#include "lockstep/tensor/tensor_call.h"

#include <ATen/ATen.h>

#include "lockstep/base/log.h"
#include "lockstep/tensor/collectives.h"
#include "testing/ranks.h"
#include "testing/tensors.h"

// What all verbs on tensors have in common: refusals, processes outside the group, copies.
namespace lockstep {
namespace {

using ::testing::AllOf;
using testing::counting;
using testing::expected_sum;
using ::testing::HasSubstr;
using testing::same_values;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

RANKS_TEST(TensorCollectives, RefuseWhatTheyCannotCarry, Ranks(2)) {
  const auto refuses = [&](const at::Tensor& tensor, const char* why) {
    EXPECT_THAT([&] { all_reduce(tensor, ReduceOp::SUM, world()); },
                ThrowsMessage<InvalidArgument>(AllOf(StartsWith("all_reduce on group"), HasSubstr(why))));
    EXPECT_THAT([&] { isend(tensor, 1 - rank(), world()); },
                ThrowsMessage<InvalidArgument>(StartsWith("isend on group")))
        << why;
  };
  refuses(at::Tensor(), "undefined");
  refuses(at::ones({3}).to(at::kFloat8_e4m3fn), "Float8_e4m3fn");
  refuses(at::ones({2}, at::TensorOptions().device(at::kMeta)), "meta");
  EXPECT_THAT([&] { all_reduce(at::ones({1}).expand({3}), ReduceOp::SUM, world()); },
              ThrowsMessage<InvalidArgument>(HasSubstr("overlap")));
  EXPECT_THAT(
      [&] {
        broadcast(at::ones({2, 2}).to_sparse(), 0, world());
      },
      ThrowsMessage<InvalidArgument>(AllOf(StartsWith("broadcast on group"), HasSubstr("dense"))));
  all_reduce(at::ones({1}), ReduceOp::SUM, world());  // and the group is none the worse
  EXPECT_THAT(
      [&] {
        all_gather({at::ones({2}), at::ones({2})}, at::ones({2}, at::kDouble), world());
      },
      ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("float32"), HasSubstr("float64"))));
  EXPECT_THAT([&] { all_gather({at::ones({2})}, at::ones({2}), world()); },
              ThrowsMessage<InvalidArgument>(HasSubstr("one tensor per rank: 2, not 1")));
  EXPECT_THAT([&] { all_gather_into_tensor(at::ones({3}), at::ones({2}), world()); },
              ThrowsMessage<InvalidArgument>(HasSubstr("2 x 2 elements, one part per rank; it has 3")));
}

RANKS_TEST(TensorCollectives, RanksOutsideTheGroupAreRefused, Ranks(2)) {
  const auto message = [](const char* what) { return ThrowsMessage<InvalidArgument>(HasSubstr(what)); };
  EXPECT_THAT([&] { broadcast(at::ones({1}), 2, world()); }, message("src 2 is not a rank of the group"));
  EXPECT_THAT([&] { broadcast(at::ones({1}), GroupRank{-1}, world()); },
              message("src GroupRank{-1} is not a rank of the group (0 to 1)"));
  EXPECT_THAT([&] { broadcast(at::ones({1}), std::nullopt, world()); }, message("src -1 is not a rank"));
  EXPECT_THAT([&] { isend(at::ones({1}), -2, world()); }, message("dst -2 is not a rank of the group"));
}

// A group object of a process that is not in the group, as torch's NON_GROUP_MEMBER.
RANKS_TEST(TensorCollectives, OutsideTheGroupNothingHappensAndOneWarningIsGiven, Ranks(1)) {
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, const std::string& line) { lines.push_back(line); });
  const ProcessGroup group(nullptr, {1, 2});
  const at::Tensor x = at::full({2}, 7);
  EXPECT_TRUE(all_reduce(x, ReduceOp::SUM, group, /*async_op=*/true).is_success());
  all_reduce(x, ReduceOp::SUM, group);
  broadcast(x, 1, group);
  barrier(group);
  send(x, 1, group);
  EXPECT_EQ(recv(x, 1, group), -1);
  EXPECT_TRUE(x.equal(at::full({2}, 7)));
  EXPECT_EQ(lines.size(), 5U) << "one line per verb";
  EXPECT_THAT(lines[0], StartsWith("all_reduce: this process is not in the group"));
  set_log_sink(nullptr);
}

RANKS_TEST(TensorCollectives, AWorkKnowsItsResults, Ranks(2)) {
  const at::Tensor x = counting({3, 4}, at::kFloat, rank()).t();
  Work work = all_reduce(x, ReduceOp::SUM, world(), /*async_op=*/true);
  work.wait();
  ASSERT_EQ(result(work).size(), 1U);
  EXPECT_EQ(result(work)[0].data_ptr(), x.data_ptr());
  EXPECT_TRUE(same_values(result(work)[0], expected_sum({3, 4}, at::kFloat, size()).t()));
  const std::vector<at::Tensor> outputs = {at::zeros({2}), at::zeros({2})};
  EXPECT_EQ(result(all_gather(outputs, at::ones({2}), world())).size(), 2U);
  EXPECT_TRUE(result(barrier(world())).empty());
}

// A program may give the tensor other memory while the operation is under way.
RANKS_TEST(TensorCollectives, AStartedOperationHoldsItsMemory, Ranks(2), Backends("shm", "tcp")) {
  at::Tensor x = counting({1000}, at::kFloat, rank());
  const auto memory = x.storage().getWeakStorageImpl();
  Work work = all_reduce(x, ReduceOp::SUM, world(), /*async_op=*/true);
  x.set_data(at::zeros({1}));
  EXPECT_FALSE(memory.expired());
  work.wait();
  EXPECT_TRUE(x.equal(at::zeros({1})));
}

RANKS_TEST(TensorCollectives, ADroppedWorkOfANonContiguousTensorIsLogged, Ranks(2)) {
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, const std::string& line) { lines.push_back(line); });
  const at::Tensor turned = counting({3, 4}, at::kFloat, rank()).t();
  const at::Tensor plain = counting({3, 4}, at::kFloat, rank());
  all_reduce(turned, ReduceOp::SUM, world(), /*async_op=*/true);
  all_reduce(plain, ReduceOp::SUM, world(), /*async_op=*/true);
  barrier(world());
  set_log_sink(nullptr);
  EXPECT_TRUE(same_values(turned, counting({3, 4}, at::kFloat, rank()).t()));
  EXPECT_TRUE(same_values(plain, expected_sum({3, 4}, at::kFloat, size())));
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_THAT(lines[0], AllOf(StartsWith("all_reduce on group"), HasSubstr("not copied back")));
}

// Of more bytes than go through memory of the group when nobody waits (1 MiB): own memory, views, several at
// a time.
RANKS_TEST(TensorCollectives, LargeBlockingCallsGiveTheirResults, Ranks(2, 3), Backends("shm", "tcp")) {
  const std::vector<std::int64_t> sizes = {700, 1001};
  const at::Tensor expected = expected_sum(sizes, at::kFloat, size());
  const at::Tensor own = counting(sizes, at::kFloat, rank());
  all_reduce(own, ReduceOp::SUM, world());
  EXPECT_TRUE(same_values(own, expected));
  const at::Tensor turned = counting(sizes, at::kFloat, rank()).t();
  all_reduce(turned, ReduceOp::SUM, world());
  EXPECT_TRUE(same_values(turned, expected.t()));
  const at::Tensor first = counting(sizes, at::kFloat, rank());
  const at::Tensor second = counting({3}, at::kFloat, rank());
  all_reduce_coalesced({first, second, turned.zero_()}, ReduceOp::SUM, world());
  EXPECT_TRUE(same_values(first, expected));
  EXPECT_TRUE(same_values(second, expected_sum({3}, at::kFloat, size())));
  const at::Tensor received =
      rank() == size() - 1 ? counting(sizes, at::kFloat, 5).t() : at::zeros({1001, 700});
  broadcast(received, size() - 1, world());
  EXPECT_TRUE(same_values(received, counting(sizes, at::kFloat, 5).t()));
  const at::Tensor gathered = at::zeros({size(), 700, 1001});
  all_gather_into_tensor(gathered, counting(sizes, at::kFloat, rank()), world());
  for (int r = 0; r < size(); ++r) EXPECT_TRUE(same_values(gathered[r], counting(sizes, at::kFloat, r)));
}

RANKS_TEST(TensorCollectives, ALargeMessageIntoAViewIsCopiedThere, Ranks(2), Backends("shm", "tcp")) {
  const at::Tensor there = at::zeros({700, 1001});
  if (rank() == 0) send(counting({1001, 700}, at::kFloat, 3), 1, world());
  if (rank() == 1) {
    EXPECT_EQ(recv(there.t(), std::nullopt, world()), 0);
    EXPECT_TRUE(same_values(there.t(), counting({1001, 700}, at::kFloat, 3)));
  }
}

// Rank r has r + 1 elements, one of them twice; rank 1 has none. The answer is the sum of the dense forms.
RANKS_TEST(TensorAllReduce, Sparse, Ranks(1, 2, 3, 4)) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kLong, at::kComplexFloat}) {
    for (const std::vector<std::int64_t>& dense : {std::vector<std::int64_t>{}, {3}}) {
      std::vector<std::int64_t> sizes = {4, 5};
      sizes.insert(sizes.end(), dense.begin(), dense.end());
      const auto of_rank = [&](int r) {
        const std::int64_t count = r == 1 ? 0 : r + 2;
        at::Tensor indices =
            at::stack({at::arange(count).remainder(2), (at::arange(count) / 2).floor().to(at::kLong)});
        if (count > 1) indices.select(1, 1).copy_(indices.select(1, 0));
        std::vector<std::int64_t> value_sizes = {count};
        value_sizes.insert(value_sizes.end(), dense.begin(), dense.end());
        return at::sparse_coo_tensor(indices, counting(value_sizes, dtype, r), sizes);
      };
      at::Tensor expected = at::zeros(sizes, dtype);
      for (int r = 0; r < size(); ++r) expected = expected + of_rank(r).to_dense();
      const at::Tensor x = of_rank(rank());
      all_reduce(x, ReduceOp::SUM, world());
      EXPECT_TRUE(x.is_sparse() && x.is_coalesced());
      EXPECT_TRUE(same_values(x.to_dense(), expected)) << c10::toString(dtype);
    }
  }
  EXPECT_THAT(
      [&] {
        all_reduce(at::ones({2, 2}).to_sparse(), ReduceOp::MAX, world());
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("only be summed (as in torch), the operator is max")));
}

RANKS_TEST(TensorAllReduce, SparseTensorsThatDoNotFitAreAMismatchEverywhere, Ranks(3)) {
  const at::Tensor x = at::ones(rank() == 2 ? at::IntArrayRef{2, 3} : at::IntArrayRef{2, 2}).to_sparse();
  EXPECT_THAT([&] { all_reduce(x, ReduceOp::SUM, world()); },
              ThrowsMessage<Mismatch>(AllOf(HasSubstr("[2, 2] with sparse_dim 2"),
                                            HasSubstr("rank 2 has Float"), HasSubstr("[2, 3]"))));
}

}  // namespace
}  // namespace lockstep
