#include "lockstep/parallel/tensor_parallel/mappings.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/job/groups.h"
#include "testing/ranks.h"

// Every mapping by hand: n ranks, and rank r multiplies what it gets by r + 1, so that gradients tell whose
// they are.
namespace lockstep::tensor_parallel {
namespace region_mappings {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

at::Tensor leaf(const at::Tensor& tensor) { return tensor.clone().set_requires_grad(true); }

// 0, 1, 2, ... in two rows of 2 n columns; and its transpose.
at::Tensor wide(int n) { return at::arange(4 * n, at::kDouble).view({2, 2 * n}); }
at::Tensor tall(int n) { return wide(n).t().contiguous(); }

// In `dim`, the block of rank q is q + 1.
at::Tensor blocks(int n, std::int64_t dim) {
  const at::Tensor numbers = at::arange(1, n + 1, at::kDouble).repeat_interleave(2);
  return dim == 0 ? numbers.unsqueeze(1).expand({2 * n, 2}) : numbers.expand({2, 2 * n});
}

void expect_equal(const at::Tensor& actual, const at::Tensor& expected, const char* what) {
  EXPECT_TRUE(actual.equal(expected)) << what << ": " << actual << "\nand not\n" << expected;
}

RANKS_TEST(Mappings, CopyAndReduce, Ranks(1, 2, 3, 4), Backends("shm", "tcp")) {
  const double sum = size() * (size() + 1) / 2.0;  // 1 + 2 + ... + n
  const at::Tensor x = leaf(wide(size()));
  const at::Tensor copied = copy_to_tensor_model_parallel_region(x, world());
  expect_equal(copied, x, "copy");
  (copied * (rank() + 1)).sum().backward();
  expect_equal(x.grad(), at::full_like(x, sum), "gradient of copy");

  const at::Tensor own = leaf(wide(size()) * (rank() + 1));
  const at::Tensor reduced = reduce_from_tensor_model_parallel_region(own, world());
  expect_equal(reduced, wide(size()) * sum, "reduce");
  (reduced * (rank() + 1)).sum().backward();
  expect_equal(own.grad(), at::full_like(own, rank() + 1), "gradient of reduce");
}

RANKS_TEST(Mappings, ScatterAndGatherTheLastDimension, Ranks(1, 2, 3, 4), Backends("shm", "tcp")) {
  const at::Tensor part = wide(size()).narrow(1, 2 * rank(), 2);
  const at::Tensor x = leaf(wide(size()));
  const at::Tensor scattered = scatter_to_tensor_model_parallel_region(x, world());
  expect_equal(scattered, part, "scatter");
  (scattered * (rank() + 1)).sum().backward();
  expect_equal(x.grad(), blocks(size(), 1), "gradient of scatter");

  const at::Tensor own = leaf(part);
  const at::Tensor gathered = gather_from_tensor_model_parallel_region(own, world());
  expect_equal(gathered, wide(size()), "gather");
  (gathered * wide(size())).sum().backward();
  expect_equal(own.grad(), part, "gradient of gather");
}

RANKS_TEST(Mappings, ScatterAndGatherTheSequence, Ranks(1, 2, 3, 4), Backends("shm", "tcp")) {
  const double sum = size() * (size() + 1) / 2.0;
  const at::Tensor part = tall(size()).narrow(0, 2 * rank(), 2);
  const at::Tensor x = leaf(tall(size()));
  const at::Tensor scattered = scatter_to_sequence_parallel_region(x, world());
  expect_equal(scattered, part, "scatter");
  (scattered * (rank() + 1)).sum().backward();
  expect_equal(x.grad(), blocks(size(), 0), "gradient of scatter");

  // Each rank's gradient of the whole is a part of a sum; or complete, and then its own rows count.
  for (const bool is_sum : {true, false}) {
    const at::Tensor own = leaf(part);
    const at::Tensor gathered = gather_from_sequence_parallel_region(own, world(), is_sum);
    expect_equal(gathered, tall(size()), "gather");
    (gathered * (rank() + 1)).sum().backward();
    expect_equal(own.grad(), at::full_like(own, is_sum ? sum : rank() + 1), "gradient of gather");
  }
}

RANKS_TEST(Mappings, ReduceScatterToTheSequence, Ranks(1, 2, 3, 4), Backends("shm", "tcp")) {
  const double sum = size() * (size() + 1) / 2.0;
  const at::Tensor x = leaf(tall(size()) * (rank() + 1));
  const at::Tensor part = reduce_scatter_to_sequence_parallel_region(x, world());
  expect_equal(part, tall(size()).narrow(0, 2 * rank(), 2) * sum, "reduce_scatter");
  (part * (rank() + 1)).sum().backward();
  expect_equal(x.grad(), blocks(size(), 0), "gradient of reduce_scatter");
}

// Of x^3 the second derivative is 6 x, through a gather there and a split back.
RANKS_TEST(Mappings, HaveSecondDerivatives, Ranks(1, 2, 3)) {
  const at::Tensor own = leaf(wide(size()).narrow(1, 2 * rank(), 2));
  const at::Tensor cubes = gather_from_tensor_model_parallel_region(own, world()).pow(3);
  const at::Tensor first = torch::autograd::grad({cubes.sum()}, {own}, {}, true, /*create_graph=*/true)[0];
  expect_equal(first, 3 * own * own, "first derivative");
  first.sum().backward();
  expect_equal(own.grad(), 6 * own, "second derivative");
}

RANKS_TEST(Mappings, TakeTensorsInAnyOrderOfMemory, Ranks(2, 3)) {
  const at::Tensor x = tall(size()).t();  // wide(), column by column
  expect_equal(scatter_to_tensor_model_parallel_region(x, world()), wide(size()).narrow(1, 2 * rank(), 2),
               "scatter");
  const at::Tensor part = wide(size()).t().narrow(0, 2 * rank(), 2);
  expect_equal(gather_from_sequence_parallel_region(part, world()), tall(size()), "gather");
  expect_equal(reduce_from_tensor_model_parallel_region(wide(size()).t(), world()), tall(size()) * size(),
               "reduce");
}

RANKS_TEST(Mappings, RefuseWhatRanksDoNotDivide, Ranks(2, 3)) {
  const auto refuses = [&](const auto& call, const std::string& why) {
    EXPECT_THAT(call,
                ThrowsMessage<InvalidArgument>(AllOf(HasSubstr(why), HasSubstr("region on group \"world\""),
                                                     HasSubstr(str("rank ", rank(), " of ", size())))));
  };
  const at::Tensor odd = at::ones({7, 5});
  refuses(
      [&] { scatter_to_tensor_model_parallel_region(odd, world()); },
      str("the last dimension of [7, 5] is cut into equal parts, and ", size(), " ranks do not divide 5"));
  refuses([&] { scatter_to_sequence_parallel_region(odd, world()); }, "ranks do not divide 7");
  refuses([&] { reduce_scatter_to_sequence_parallel_region(odd, world()); }, "ranks do not divide 7");
  refuses([&] { gather_from_sequence_parallel_region(at::ones({}), world()); }, "no dimensions");

  const ProcessGroup first = new_group({0});
  if (rank() == 0) {
    expect_equal(copy_to_tensor_model_parallel_region(odd, first), odd, "a group of one");
  } else {
    EXPECT_THAT([&] { copy_to_tensor_model_parallel_region(odd, first); },
                ThrowsMessage<InvalidArgument>(HasSubstr("not in the group")));
  }
}

}  // namespace
}  // namespace region_mappings
}  // namespace lockstep::tensor_parallel
