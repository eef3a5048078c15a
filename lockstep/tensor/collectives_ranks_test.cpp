#include "lockstep/tensor/collectives.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "testing/lacking.h"
#include "testing/ranks.h"
#include "testing/tensors.h"

// Every backend is tried below libtorch (comm/collectives/). A process with libtorch takes half a second to
// start, so here one test does it and the others use processes only.
namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

using testing::counting;
using testing::DTYPES;
using testing::expected_sum;
using testing::same_values;
using testing::sum_of_ranks;

RANKS_TEST(TensorAllReduce, EveryDtypeAndShape, Ranks(1, 2, 3, 4), EveryBackend()) {
  const std::vector<std::vector<std::int64_t>> shapes = {{},      {0},          {1},    {5, 0, 3},
                                                         {7, 11}, {2, 3, 4, 5}, {70001}};
  for (const at::ScalarType dtype : DTYPES) {
    if (is_lacking(world(), dtype_of(dtype), ReduceOp::SUM)) continue;  // the tests of comm/ see it refused
    for (const auto& shape : shapes) {
      const at::Tensor x = counting(shape, dtype, rank());
      all_reduce(x, ReduceOp::SUM, world());
      EXPECT_TRUE(same_values(x, expected_sum(shape, dtype, size())))
          << c10::toString(dtype) << " " << at::IntArrayRef(shape);
    }
  }
}

RANKS_TEST(TensorAllReduce, EveryOperatorAgainstLibtorch, Ranks(2, 3)) {
  const auto of_rank = [](int r) { return (at::arange(200, at::kFloat) * (r + 1)).remainder(13) - 5; };
  std::vector<at::Tensor> all;
  for (int r = 0; r < size(); ++r) all.push_back(of_rank(r));
  const at::Tensor stack = at::stack(all);
  const std::vector<std::pair<ReduceOp, at::Tensor>> table = {{ReduceOp::SUM, stack.sum(0)},
                                                              {ReduceOp::AVG, stack.sum(0) / size()},
                                                              {ReduceOp::PRODUCT, stack.prod(0)},
                                                              {ReduceOp::MIN, stack.amin(0)},
                                                              {ReduceOp::MAX, stack.amax(0)}};
  for (const auto& [op, expected] : table) {
    const at::Tensor x = of_rank(rank());
    all_reduce(x, op, world());
    EXPECT_TRUE(same_values(x, expected)) << name_of(op);
  }
}

// Views with every kind of strides: only the elements of the view change.
RANKS_TEST(TensorAllReduce, NonContiguousTensors, Ranks(2, 3)) {
  const auto view_of = [](int kind, const at::Tensor& base) {  // base is 4 x 6 x 8 x 10
    switch (kind) {
      case 0: return base.permute({3, 1, 0, 2});
      case 1: return base.slice(3, 1, 10, 3);
      case 2: return base.select(1, 2);
      case 3: return base.narrow(0, 1, 2);
      case 4: return base.contiguous(at::MemoryFormat::ChannelsLast);
      default: return base.diagonal(0, 0, 1);
    }
  };
  for (int kind = 0; kind < 6; ++kind) {
    const at::Tensor base = counting({4, 6, 8, 10}, at::kFloat, rank());
    const at::Tensor before = base.clone();
    const at::Tensor view = view_of(kind, base);
    const at::Tensor expected =
        view_of(kind, counting({4, 6, 8, 10}, at::kFloat, 0)) * size() + sum_of_ranks(size());
    const auto strides = view.strides().vec();
    all_reduce(view, ReduceOp::SUM, world());
    EXPECT_TRUE(same_values(view, expected)) << "kind " << kind;
    EXPECT_EQ(view.strides().vec(), strides) << "kind " << kind;
    view.copy_(view_of(kind, before));
    EXPECT_TRUE(same_values(base, before)) << "kind " << kind << ": elements outside of the view changed";
  }
}

// Elements meet by index, not by place in memory: ranks may have different strides.
RANKS_TEST(TensorAllReduce, RanksMayHaveDifferentStrides, Ranks(2, 3)) {
  at::Tensor x = counting({6, 5}, at::kFloat, rank());
  if (rank() == 1) x = x.t().contiguous().t();
  all_reduce(x, ReduceOp::SUM, world());
  EXPECT_TRUE(same_values(x, expected_sum({6, 5}, at::kFloat, size())));
  at::Tensor image = counting({2, 3, 4, 5}, at::kFloat, rank());
  if (rank() == 0) image = image.contiguous(at::MemoryFormat::ChannelsLast);
  broadcast(image, 1, world());
  EXPECT_TRUE(same_values(image, counting({2, 3, 4, 5}, at::kFloat, 1)));
}

RANKS_TEST(TensorAllReduce, AsyncOnANonContiguousTensor, Ranks(2)) {
  const at::Tensor waited = counting({8, 9}, at::kFloat, rank()).t();
  const at::Tensor polled = counting({8, 9}, at::kFloat, rank()).t();
  const at::Tensor expected = expected_sum({8, 9}, at::kFloat, size()).t();
  Work first = all_reduce(waited, ReduceOp::SUM, world(), /*async_op=*/true);
  const Work second = all_reduce(polled, ReduceOp::SUM, world(), /*async_op=*/true);
  first.wait();
  first.wait();
  while (!second.is_completed()) {
  }
  EXPECT_TRUE(same_values(waited, expected));
  EXPECT_TRUE(same_values(polled, expected));
}

RANKS_TEST(TensorAllReduce, TensorsThatNeedGradients, Ranks(2)) {
  const at::Tensor leaf = counting({5}, at::kFloat, rank()).set_requires_grad(true);
  all_reduce(leaf, ReduceOp::SUM, world());
  EXPECT_TRUE(leaf.requires_grad() && leaf.is_leaf());
  EXPECT_TRUE(same_values(leaf.detach(), expected_sum({5}, at::kFloat, size())));
  const at::Tensor turned = counting({5, 4}, at::kFloat, rank()).t().set_requires_grad(true);
  all_reduce(turned, ReduceOp::SUM, world());
  EXPECT_TRUE(same_values(turned.detach(), expected_sum({5, 4}, at::kFloat, size()).t()));
  const c10::InferenceMode inference;
  const at::Tensor frozen = counting({5}, at::kFloat, rank());
  all_reduce(frozen, ReduceOp::SUM, world());
  EXPECT_TRUE(same_values(frozen, expected_sum({5}, at::kFloat, size())));
}

RANKS_TEST(TensorAllReduce, ConjugateViews, Ranks(2)) {
  const at::Tensor base = at::complex(counting({6}, at::kFloat, rank()), counting({6}, at::kFloat, 1));
  const at::Tensor view = base.conj();
  all_reduce(view, ReduceOp::SUM, world());
  const at::Tensor real = expected_sum({6}, at::kFloat, size());
  const at::Tensor imaginary = counting({6}, at::kFloat, 1) * size();
  EXPECT_TRUE(same_values(view.resolve_conj(), at::complex(real, -imaginary)));
  EXPECT_TRUE(same_values(base, at::complex(real, imaginary)));
}

RANKS_TEST(TensorAllReduce, AStartedOperationHoldsItsTensor, Ranks(2)) {
  at::Tensor kept = at::full({100}, rank(), at::kFloat);
  const at::Tensor alias = kept.view({10, 10});
  Work work = all_reduce(at::full({100000}, 1, at::kFloat), ReduceOp::SUM, world(), /*async_op=*/true);
  Work other = all_reduce(kept, ReduceOp::SUM, world(), /*async_op=*/true);
  kept = at::Tensor();
  other.wait();
  work.wait();
  EXPECT_TRUE(same_values(alias, at::full({10, 10}, sum_of_ranks(size()), at::kFloat)));
}

RANKS_TEST(TensorBroadcast, EveryDtype, Ranks(2, 3)) {
  for (const at::ScalarType dtype : DTYPES) {
    for (int root = 0; root < size(); ++root) {
      const at::Tensor x = counting({3, 50}, dtype, rank());
      const at::Tensor turned = counting({3, 50}, dtype, rank()).t();
      broadcast(x, root, world());
      broadcast(turned, root, world());
      EXPECT_TRUE(same_values(x, counting({3, 50}, dtype, root))) << c10::toString(dtype);
      EXPECT_TRUE(same_values(turned, counting({3, 50}, dtype, root).t())) << c10::toString(dtype);
    }
  }
}

// Rank r contributes r x 4 elements, rank 0 none.
RANKS_TEST(TensorAllGather, EveryDtypeWithUnevenShapes, Ranks(2, 3)) {
  for (const at::ScalarType dtype : DTYPES) {
    for (const bool turned : {false, true}) {
      std::vector<at::Tensor> outputs;
      for (int r = 0; r < size(); ++r) outputs.push_back(at::zeros({r, 4}, dtype));
      if (turned) outputs.back() = at::zeros({4, size() - 1}, dtype).t();
      const at::Tensor x = counting({rank(), 4}, dtype, rank());
      all_gather(outputs, turned ? x.t().contiguous().t() : x, world());
      for (int r = 0; r < size(); ++r) {
        EXPECT_TRUE(same_values(outputs[static_cast<std::size_t>(r)], counting({r, 4}, dtype, r)))
            << c10::toString(dtype);
      }
    }
  }
}

RANKS_TEST(TensorMessages, EveryDtypeAndStrides, Ranks(2)) {
  for (const at::ScalarType dtype : DTYPES) {
    at::Tensor x = counting({4, 6}, dtype, rank()).t();
    at::Tensor y = counting({}, dtype, rank());
    if (rank() == 0) {
      send(x, 1, world(), 2);
      isend(y, 1, world(), 3).wait();
    } else {
      Work work = irecv(y, 0, world(), 3);
      EXPECT_EQ(recv(x, 0, world(), 2), 0);
      work.wait();
      EXPECT_EQ(work.source_rank(), 0);
    }
    EXPECT_TRUE(same_values(x, counting({4, 6}, dtype, 0).t())) << c10::toString(dtype);
    EXPECT_TRUE(same_values(y, counting({}, dtype, 0))) << c10::toString(dtype);
  }
}

// What is only read may overlap.
RANKS_TEST(TensorAllGather, AnExpandedInput, Ranks(2)) {
  std::vector<at::Tensor> outputs;
  for (int r = 0; r < size(); ++r) outputs.push_back(at::zeros({5}));
  all_gather(outputs, at::full({1}, rank(), at::kFloat).expand({5}), world());
  for (int r = 0; r < size(); ++r) {
    EXPECT_TRUE(same_values(outputs[static_cast<std::size_t>(r)], at::full({5}, r, at::kFloat)));
  }
}

RANKS_TEST(TensorShared, BucketsAreReducedInPlace, Ranks(2, 3)) {
  for (const at::ScalarType dtype : DTYPES) {
    at::Tensor x = shared_empty({3, 1000}, dtype, world());
    ASSERT_TRUE(x.is_contiguous() && x.scalar_type() == dtype);
    ASSERT_TRUE(same_values(x, at::zeros({3, 1000}, dtype)));
    const at::Tensor row = x.select(0, 1);  // a view keeps the memory alive
    x.copy_(counting({3, 1000}, dtype, rank()));
    x = at::Tensor();
    all_reduce(row, ReduceOp::SUM, world());
    EXPECT_TRUE(same_values(row, expected_sum({3, 1000}, dtype, size()).select(0, 1)))
        << c10::toString(dtype);
  }
  EXPECT_EQ(shared_empty({0}, at::kFloat, world()).numel(), 0);
  // Nothing to hold, and yet libtorch multiplies the other sizes for the strides.
  EXPECT_THROW(shared_empty({0, 1L << 62, 1L << 62}, at::kFloat, world()), InvalidArgument);
  EXPECT_EQ(shared_empty({}, at::kFloat, world()).numel(), 1);
  EXPECT_THAT([&] { shared_empty({-1}, at::kFloat, world()); },
              ThrowsMessage<InvalidArgument>(HasSubstr("[-1]")));
  EXPECT_THAT(
      [&] {
        shared_empty({1L << 40, 1L << 40}, at::kFloat, world());
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("too large")));
}

RANKS_TEST(TensorAllGather, IntoOneTensor, Ranks(1, 2, 3, 4), EveryBackend()) {
  for (const at::ScalarType dtype : DTYPES) {
    const at::Tensor x = counting({2, 3}, dtype, rank());
    std::vector<at::Tensor> all;
    for (int r = 0; r < size(); ++r) all.push_back(counting({2, 3}, dtype, r));
    const at::Tensor concatenated = at::zeros({2 * size(), 3}, dtype);
    const at::Tensor stacked = at::zeros({size(), 2, 3}, dtype);
    const at::Tensor turned = at::zeros({3, 2 * size()}, dtype).t();
    for (const at::Tensor& output : {concatenated, stacked, turned})
      all_gather_into_tensor(output, x, world());
    EXPECT_TRUE(same_values(concatenated, at::cat(all))) << c10::toString(dtype);
    EXPECT_TRUE(same_values(stacked, at::stack(all))) << c10::toString(dtype);
    EXPECT_TRUE(same_values(turned, at::cat(all))) << c10::toString(dtype);
  }
}

RANKS_TEST(TensorAllReduce, Coalesced, Ranks(1, 2, 3, 4)) {
  const std::vector<std::vector<std::int64_t>> shapes = {{3, 4}, {}, {0, 2}, {500}, {2, 3, 4}};
  for (const at::ScalarType dtype : {at::kFloat, at::kInt, at::kComplexDouble}) {
    std::vector<at::Tensor> tensors;
    for (const auto& shape : shapes) tensors.push_back(counting(shape, dtype, rank()));
    tensors[4] = tensors[4].permute({2, 0, 1}).contiguous().permute({1, 2, 0});
    ASSERT_FALSE(tensors[4].is_contiguous());
    all_reduce_coalesced(tensors, ReduceOp::SUM, world());
    for (std::size_t i = 0; i < shapes.size(); ++i)
      EXPECT_TRUE(same_values(tensors[i], expected_sum(shapes[i], dtype, size()))) << i;
  }
  EXPECT_THAT([&] { all_reduce_coalesced({}, ReduceOp::SUM, world()); },
              ThrowsMessage<InvalidArgument>(HasSubstr("empty")));
  EXPECT_THAT(
      [&] {
        all_reduce_coalesced({at::ones({1}), at::ones({1}, at::kInt)}, ReduceOp::SUM, world());
      },
      ThrowsMessage<InvalidArgument>(AllOf(StartsWith("all_reduce_coalesced"), HasSubstr("same dtype"))));
}

// Each rank sends to its right and receives from its left, all at once.
RANKS_TEST(TensorMessages, BatchedInARing, Ranks(2, 3, 4)) {
  const int right = (rank() + 1) % size();
  const int left = (rank() + size() - 1) % size();
  const at::Tensor theirs = at::zeros({3, 2}).t();
  std::vector<Work> works =
      batch_isend_irecv({{irecv, theirs, left, world(), 5},
                         {isend, at::full({2, 3}, rank(), at::kFloat), GroupRank{right}, world(), 5}});
  ASSERT_EQ(works.size(), 2U);
  for (Work& work : works) work.wait();
  EXPECT_TRUE(theirs.equal(at::full({2, 3}, left, at::kFloat)));
  EXPECT_EQ(works[0].source_rank(), left);
  EXPECT_THAT([&] { batch_isend_irecv({}); }, ThrowsMessage<InvalidArgument>(HasSubstr("empty")));
  EXPECT_THAT(
      [&] {
        batch_isend_irecv({{nullptr, theirs, left, world()}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("dist::isend or dist::irecv")));
}

// The default group is the one init_process_group() made.
RANKS_TEST(TensorCollectives, UseTheWorldUnlessTold, Ranks(1, 2)) {
  const at::Tensor x = at::ones({3});
  all_reduce(x);
  EXPECT_TRUE(same_values(x, at::full({3}, size(), at::kFloat)));
  broadcast(x, 0);
  barrier();
}

}  // namespace
}  // namespace lockstep
