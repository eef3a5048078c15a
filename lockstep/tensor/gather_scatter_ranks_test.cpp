#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/tensor/collectives.h"
#include "testing/lacking.h"
#include "testing/ranks.h"
#include "testing/tensors.h"

// reduce, gather, scatter, reduce_scatter, all_to_all on tensors: the answer is always made of
// counting(sizes, dtype, rank), by libtorch in this process.
namespace lockstep {
namespace {

using ::testing::AllOf;
using testing::counting;
using testing::DTYPES;
using testing::expected_sum;
using ::testing::HasSubstr;
using testing::same_values;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

using Sizes = std::vector<std::int64_t>;

// The same values in memory that is not contiguous.
at::Tensor turned(const at::Tensor& tensor) {
  return tensor.dim() < 2 ? tensor.clone() : tensor.transpose(0, 1).contiguous().transpose(0, 1);
}

std::vector<at::Tensor> zeros_for(int ranks, const Sizes& sizes, at::ScalarType dtype) {
  std::vector<at::Tensor> tensors;
  for (int r = 0; r < ranks; ++r) tensors.push_back(at::zeros(sizes, dtype));
  return tensors;
}

// What rank `from` has for rank `to`: rows depend on both, and rank 1 has none for rank 0.
at::Tensor parcel(int from, int to, at::ScalarType dtype) {
  const int rows = from == 1 && to == 0 ? 0 : (from * 2 + to) % 5 + 1;
  return counting({rows, 3}, dtype, from * 10 + to);
}

RANKS_TEST(TensorReduce, OnlyTheRootsTensorChanges, Ranks(1, 2, 3, 4), EveryBackend()) {
  for (const at::ScalarType dtype : DTYPES) {
    if (is_lacking(world(), dtype_of(dtype), ReduceOp::SUM)) continue;  // the tests of comm/ see it refused
    for (int root = 0; root < size(); ++root) {
      const at::Tensor x = counting({4, 3}, dtype, rank());
      const at::Tensor y = turned(x);
      reduce(x, root, ReduceOp::SUM, world());
      reduce(y, GroupRank{root}, ReduceOp::SUM, world());
      const at::Tensor expected =
          rank() == root ? expected_sum({4, 3}, dtype, size()) : counting({4, 3}, dtype, rank());
      EXPECT_TRUE(same_values(x, expected)) << c10::toString(dtype) << " root " << root;
      EXPECT_TRUE(same_values(y, expected)) << c10::toString(dtype) << " root " << root;
    }
  }
}

// Rank r gives r x 4 elements, rank 0 none.
RANKS_TEST(TensorGather, EveryDtypeRootAndShape, Ranks(1, 2, 3, 4), EveryBackend()) {
  for (const at::ScalarType dtype : DTYPES) {
    for (int root = 0; root < size(); ++root) {
      std::vector<at::Tensor> list;
      for (int r = 0; r < size() && rank() == root; ++r) list.push_back(turned(at::zeros({r, 4}, dtype)));
      gather(turned(counting({rank(), 4}, dtype, rank())), list, root, world());
      for (std::size_t r = 0; r < list.size(); ++r)
        EXPECT_TRUE(same_values(list[r], counting({static_cast<int>(r), 4}, dtype, static_cast<int>(r))));
    }
  }
}

RANKS_TEST(TensorScatter, EveryDtypeRootAndShape, Ranks(1, 2, 3, 4), EveryBackend()) {
  for (const at::ScalarType dtype : DTYPES) {
    for (int root = 0; root < size(); ++root) {
      std::vector<at::Tensor> list;
      for (int r = 0; r < size() && rank() == root; ++r)
        list.push_back(turned(counting({r, 4}, dtype, root + r)));
      const at::Tensor x = turned(at::zeros({rank(), 4}, dtype));
      scatter(x, list, root, world());
      EXPECT_TRUE(same_values(x, counting({rank(), 4}, dtype, root + rank()))) << c10::toString(dtype);
    }
  }
}

RANKS_TEST(TensorReduceScatter, ListsOfDifferentShapes, Ranks(1, 2, 3, 4), EveryBackend()) {
  for (const at::ScalarType dtype : DTYPES) {
    if (is_lacking(world(), dtype_of(dtype), ReduceOp::SUM)) continue;  // the tests of comm/ see it refused
    std::vector<at::Tensor> list;
    for (int r = 0; r < size(); ++r) list.push_back(turned(counting({3, r}, dtype, rank())));
    const at::Tensor x = turned(at::zeros({3, rank()}, dtype));
    reduce_scatter(x, list, ReduceOp::SUM, world());
    EXPECT_TRUE(same_values(x, expected_sum({3, rank()}, dtype, size()))) << c10::toString(dtype);
  }
}

RANKS_TEST(TensorReduceScatter, OneTensorAndEveryOperator, Ranks(1, 2, 3, 4), EveryBackend()) {
  const auto of_rank = [&](int r) {
    return (at::arange(6 * size(), at::kFloat) * (r + 1)).remainder(13).view({2 * size(), 3}) - 5;
  };
  std::vector<at::Tensor> all;
  for (int r = 0; r < size(); ++r) all.push_back(of_rank(r));
  const at::Tensor stack = at::stack(all);
  const std::vector<std::pair<ReduceOp, at::Tensor>> table = {{ReduceOp::SUM, stack.sum(0)},
                                                              {ReduceOp::AVG, stack.sum(0) / size()},
                                                              {ReduceOp::PRODUCT, stack.prod(0)},
                                                              {ReduceOp::MIN, stack.amin(0)},
                                                              {ReduceOp::MAX, stack.amax(0)}};
  for (const auto& [op, expected] : table) {
    const at::Tensor x = at::zeros({2, 3});
    reduce_scatter_tensor(x, turned(of_rank(rank())), op, world());
    EXPECT_TRUE(same_values(x, expected.narrow(0, 2 * rank(), 2))) << name_of(op);
  }
}

RANKS_TEST(TensorAllToAll, ListsOfDifferentShapes, Ranks(1, 2, 3, 4), EveryBackend()) {
  for (const at::ScalarType dtype : DTYPES) {
    std::vector<at::Tensor> inputs;
    std::vector<at::Tensor> outputs;
    for (int r = 0; r < size(); ++r) inputs.push_back(turned(parcel(rank(), r, dtype)));
    for (int r = 0; r < size(); ++r) outputs.push_back(turned(at::zeros_like(parcel(r, rank(), dtype))));
    all_to_all(outputs, inputs, world());
    for (int r = 0; r < size(); ++r)
      EXPECT_TRUE(same_values(outputs[static_cast<std::size_t>(r)], parcel(r, rank(), dtype)))
          << c10::toString(dtype);
  }
}

RANKS_TEST(TensorAllToAll, SingleWithUnevenAndEqualSplits, Ranks(1, 2, 3, 4), EveryBackend()) {
  for (const at::ScalarType dtype : {at::kFloat, at::kByte, at::kComplexDouble}) {
    std::vector<at::Tensor> to;
    std::vector<at::Tensor> from;
    Sizes input_splits;
    Sizes output_splits;
    for (int r = 0; r < size(); ++r) {
      to.push_back(parcel(rank(), r, dtype));
      from.push_back(parcel(r, rank(), dtype));
      input_splits.push_back(to.back().size(0));
      output_splits.push_back(from.back().size(0));
    }
    const at::Tensor output = turned(at::zeros_like(at::cat(from)));
    all_to_all_single(output, turned(at::cat(to)), output_splits, input_splits, world());
    EXPECT_TRUE(same_values(output, at::cat(from)));

    const at::Tensor equal = at::zeros({2 * size()}, dtype);
    all_to_all_single(equal, (at::arange(2 * size()) + 100 * rank()).to(dtype), {}, {}, world());
    std::vector<at::Tensor> expected;
    for (int r = 0; r < size(); ++r) expected.push_back((at::arange(2) + 2 * rank() + 100 * r).to(dtype));
    EXPECT_TRUE(same_values(equal, at::cat(expected)));
  }
}

RANKS_TEST(TensorVerbs, Asynchronously, Ranks(2, 3)) {
  const at::Tensor sum = turned(counting({3, 4}, at::kFloat, rank()));
  std::vector<at::Tensor> gathered =
      rank() == 1 ? zeros_for(size(), {2}, at::kFloat) : std::vector<at::Tensor>();
  const at::Tensor mine = at::zeros({2});
  std::vector<Work> works = {
      reduce(sum, 0, ReduceOp::SUM, world(), true),
      gather(at::full({2}, rank(), at::kFloat), gathered, 1, world(), true),
      reduce_scatter_tensor(mine, at::ones({2 * size()}), ReduceOp::SUM, world(), true)};
  for (Work& work : works) work.wait();
  if (rank() == 0) EXPECT_TRUE(same_values(sum, expected_sum({3, 4}, at::kFloat, size())));
  for (std::size_t r = 0; r < gathered.size(); ++r)
    EXPECT_TRUE(gathered[r].equal(at::full({2}, static_cast<int>(r), at::kFloat)));
  EXPECT_TRUE(mine.equal(at::full({2}, size(), at::kFloat)));
}

RANKS_TEST(TensorMessages, FromAnyRank, Ranks(2, 3, 4), EveryBackend(), Except("nccl")) {
  if (rank() != 0) return send(at::full({2}, rank(), at::kFloat), 0, world());
  at::Tensor seen = at::zeros({size()});
  for (int i = 1; i < size(); ++i) {
    const at::Tensor x = at::zeros({2});
    const int source = recv(x, std::nullopt, world());
    EXPECT_TRUE(x.equal(at::full({2}, source, at::kFloat)));
    seen[source] += 1;
  }
  EXPECT_TRUE(seen.narrow(0, 1, size() - 1).eq(1).all().item<bool>());
}

RANKS_TEST(TensorVerbs, RefuseListsThatDoNotFit, Ranks(1)) {
  const auto refuses = [](const auto& call, const char* verb, const char* why) {
    EXPECT_THAT(call, ThrowsMessage<InvalidArgument>(AllOf(StartsWith(verb), HasSubstr(why))));
  };
  const at::Tensor x = at::ones({4});
  refuses([&] { gather(x, {}, 0, world()); }, "gather on", "must be given on the destination rank");
  refuses([&] { scatter(x, {x, x}, 0, world()); }, "scatter on", "one tensor per rank: 1, not 2");
  refuses([&] { gather(x, {x.to(at::kInt)}, 0, world()); }, "gather on", "same dtype");
  refuses(
      [&] {
        reduce_scatter(x, {x, x}, ReduceOp::SUM, world());
      },
      "reduce_scatter on", "one tensor per rank");
  refuses([&] { reduce_scatter_tensor(x, at::ones({5}), ReduceOp::SUM, world()); },
          "reduce_scatter_tensor on", "1 x 4 elements");
  refuses([&] { all_to_all({x}, {}, world()); }, "all_to_all on", "one tensor per rank");
  refuses([&] { all_to_all_single(x, x, {3}, {}, world()); }, "all_to_all_single on",
          "the split sizes of the output tensor add up to 3, its dimension 0 is 4");
  refuses(
      [&] {
        all_to_all_single(x, x, {}, {5, -1}, world());
      },
      "all_to_all_single on", "one tensor per rank");
  refuses([&] { all_to_all_single(x, at::ones({}), {}, {}, world()); }, "all_to_all_single on",
          "no dimension 0");
  refuses([&] { reduce(x.expand({2, 4}), 0, ReduceOp::SUM, world()); }, "reduce on", "overlap");
}

RANKS_TEST(TensorVerbs, RefuseListsOnTheWrongRank, Ranks(2)) {
  const at::Tensor x = at::ones({1});
  const auto message = [](const char* what) { return ThrowsMessage<InvalidArgument>(HasSubstr(what)); };
  EXPECT_THAT(
      [&] {
        gather(x, {x, x}, 1 - rank(), world());
      },
      message("must not be given on a rank that is not the destination"));
  EXPECT_THAT(
      [&] {
        scatter(x, {x, x}, 1 - rank(), world());
      },
      message("must not be given on a rank that is not the source"));
  EXPECT_THAT([&] { all_to_all_single(at::ones({3}), at::ones({3}), {}, {}, world()); },
              message("dimension 0 of the input tensor (3) does not divide equally among 2 ranks"));
}

}  // namespace
}  // namespace lockstep
