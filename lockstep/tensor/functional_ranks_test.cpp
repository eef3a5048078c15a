#include "lockstep/tensor/functional.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <numeric>

#include "lockstep/base/error.h"
#include "testing/ranks.h"

// Values, gradients and gradients of gradients, against libtorch's autograd on the joined computation: all
// ranks' inputs in one process, each rank's results made of them by plain libtorch.
namespace lockstep {
namespace {

namespace F = lockstep::functional;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Tensors = std::vector<at::Tensor>;

// The inputs of one rank, as they need gradients.
at::Tensor leaf(at::IntArrayRef sizes, int seed) {
  const std::int64_t count = at::empty(sizes).numel();
  return (at::arange(count, at::kDouble) * 0.7 + seed * 1.3).sin().view(sizes).set_requires_grad(true);
}

// A function of one rank's results that is not linear, and other for each rank.
at::Tensor loss_of(const Tensors& results, int rank) {
  at::Tensor loss = at::zeros({}, at::kDouble);
  for (const at::Tensor& result : results) {
    const at::Tensor weights = (at::arange(result.numel(), at::kDouble) + rank).cos().view(result.sizes());
    loss = loss + (weights * (result + 1).pow(3)).sum();
  }
  return loss;
}

Tensors gradients_of(const at::Tensor& loss, const Tensors& inputs) {
  Tensors gradients =
      torch::autograd::grad({loss}, inputs, {}, true, /*create_graph=*/true, /*allow_unused=*/true);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!gradients[i].defined()) gradients[i] = at::zeros_like(inputs[i]) + inputs[i] * 0;
  }
  return gradients;
}

at::Tensor squares(const Tensors& tensors) {
  at::Tensor sum = at::zeros({}, at::kDouble);
  for (const at::Tensor& tensor : tensors) sum = sum + tensor.pow(2).sum();
  return sum;
}

struct Case {
  std::function<Tensors(int rank)> inputs;
  std::function<Tensors(const Tensors& mine)> collective;
  std::function<Tensors(int rank, const std::vector<Tensors>& all)> joined;
};

void expect_close(const Tensors& actual, const Tensors& expected, const char* what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(actual[i].sizes(), expected[i].sizes()) << what;
    EXPECT_TRUE(at::allclose(actual[i], expected[i], 1e-12, 1e-12)) << what << " " << i;
  }
}

void check(const Case& test, int rank, int ranks) {
  std::vector<Tensors> all;
  Tensors everything;
  at::Tensor whole_loss = at::zeros({}, at::kDouble);
  for (int r = 0; r < ranks; ++r) all.push_back(test.inputs(r));
  for (const Tensors& inputs : all) everything.insert(everything.end(), inputs.begin(), inputs.end());
  for (int r = 0; r < ranks; ++r) whole_loss = whole_loss + loss_of(test.joined(r, all), r);
  const Tensors whole_gradients = gradients_of(whole_loss, everything);
  const Tensors whole_second = gradients_of(squares(whole_gradients), everything);
  std::size_t before = 0;
  for (int r = 0; r < rank; ++r) before += all[static_cast<std::size_t>(r)].size();

  const Tensors mine = test.inputs(rank);
  const auto of_rank = [&](const Tensors& tensors) {
    const auto first = tensors.begin() + static_cast<std::ptrdiff_t>(before);
    return Tensors(first, first + static_cast<std::ptrdiff_t>(mine.size()));
  };
  const Tensors results = test.collective(mine);
  expect_close(results, test.joined(rank, all), "values");
  const Tensors gradients = gradients_of(loss_of(results, rank), mine);
  expect_close(gradients, of_rank(whole_gradients), "gradients");
  expect_close(gradients_of(squares(gradients), mine), of_rank(whole_second), "second gradients");
}

// The first input of every rank.
Tensors firsts(const std::vector<Tensors>& all) {
  Tensors tensors;
  for (const Tensors& inputs : all) tensors.push_back(inputs[0]);
  return tensors;
}

Tensors zeros_like(const Tensors& tensors) {
  Tensors zeros;
  for (const at::Tensor& tensor : tensors) zeros.push_back(at::zeros_like(tensor.detach()));
  return zeros;
}

const auto one_each = [](int r) { return Tensors{leaf({2, 3}, r)}; };

RANKS_TEST(FunctionalAllReduce, Gradients, Ranks(1, 2, 3, 4)) {
  for (const ReduceOp op : {ReduceOp::SUM, ReduceOp::AVG}) {
    const double factor = op == ReduceOp::AVG ? 1.0 / size() : 1.0;
    check({one_each, [&](const Tensors& mine) { return Tensors{F::all_reduce(mine[0], op, world())}; },
           [&](int, const auto& all) { return Tensors{at::stack(firsts(all)).sum(0) * factor}; }},
          rank(), size());
  }
}

RANKS_TEST(FunctionalBroadcast, Gradients, Ranks(1, 2, 3, 4)) {
  for (int root = 0; root < size(); ++root) {
    check({one_each, [&](const Tensors& mine) { return Tensors{F::broadcast(mine[0], root, world())}; },
           [&](int, const auto& all) { return Tensors{firsts(all)[static_cast<std::size_t>(root)]}; }},
          rank(), size());
  }
}

RANKS_TEST(FunctionalReduce, Gradients, Ranks(1, 2, 3, 4)) {
  for (const ReduceOp op : {ReduceOp::SUM, ReduceOp::AVG}) {
    const double factor = op == ReduceOp::AVG ? 1.0 / size() : 1.0;
    const int root = size() - 1;
    check({one_each, [&](const Tensors& mine) { return Tensors{F::reduce(mine[0], root, op, world())}; },
           [&](int r, const auto& all) {
             const at::Tensor sum = at::stack(firsts(all)).sum(0) * factor;
             return r == root ? Tensors{sum} : zeros_like({sum});
           }},
          rank(), size());
  }
}

RANKS_TEST(FunctionalAllGather, Gradients, Ranks(1, 2, 3, 4)) {
  check({one_each, [&](const Tensors& mine) { return F::all_gather(mine[0], world()); },
         [&](int, const auto& all) { return firsts(all); }},
        rank(), size());
}

RANKS_TEST(FunctionalGather, Gradients, Ranks(1, 2, 3, 4)) {
  const int root = size() / 2;
  check({one_each, [&](const Tensors& mine) { return F::gather(mine[0], root, world()); },
         [&](int r, const auto& all) { return r == root ? firsts(all) : zeros_like(firsts(all)); }},
        rank(), size());
}

// Every rank has one tensor for each rank, of sizes that may depend on the pair.
Tensors parcels(int from, int ranks, bool is_even) {
  Tensors tensors;
  for (int to = 0; to < ranks; ++to)
    tensors.push_back(leaf({is_even ? 2 : (from + 2 * to) % 3, 2}, from * ranks + to));
  return tensors;
}

// What was meant for rank `to`.
Tensors meant_for(int to, const std::vector<Tensors>& all) {
  Tensors tensors;
  for (const Tensors& inputs : all) tensors.push_back(inputs[static_cast<std::size_t>(to)]);
  return tensors;
}

RANKS_TEST(FunctionalScatter, Gradients, Ranks(1, 2, 3, 4)) {
  const auto root = static_cast<std::size_t>(size() - 1);
  check({[&](int r) { return parcels(r, size(), true); },
         [&](const Tensors& mine) { return Tensors{F::scatter(mine, static_cast<int>(root), world())}; },
         [&](int r, const auto& all) { return Tensors{all[root][static_cast<std::size_t>(r)]}; }},
        rank(), size());
}

RANKS_TEST(FunctionalReduceScatter, Gradients, Ranks(1, 2, 3, 4)) {
  for (const ReduceOp op : {ReduceOp::SUM, ReduceOp::AVG}) {
    const double factor = op == ReduceOp::AVG ? 1.0 / size() : 1.0;
    check({[&](int r) { return parcels(r, size(), true); },
           [&](const Tensors& mine) { return Tensors{F::reduce_scatter(mine[0], mine, op, world())}; },
           [&](int r, const auto& all) { return Tensors{at::stack(meant_for(r, all)).sum(0) * factor}; }},
          rank(), size());
  }
}

RANKS_TEST(FunctionalAllToAll, Gradients, Ranks(1, 2, 3, 4)) {
  Tensors outputs;
  for (int r = 0; r < size(); ++r)
    outputs.push_back(parcels(r, size(), false)[static_cast<std::size_t>(rank())]);
  check({[&](int r) { return parcels(r, size(), false); },
         [&](const Tensors& mine) { return F::all_to_all(outputs, mine, world()); },
         [&](int r, const auto& all) { return meant_for(r, all); }},
        rank(), size());
}

RANKS_TEST(FunctionalAllToAll, SingleGradients, Ranks(1, 2, 3, 4)) {
  std::vector<std::int64_t> from;
  std::vector<std::int64_t> to;
  for (int r = 0; r < size(); ++r) from.push_back((r + 2 * rank()) % 3);
  for (int r = 0; r < size(); ++r) to.push_back((rank() + 2 * r) % 3);
  const at::Tensor output =
      at::empty({std::accumulate(from.begin(), from.end(), std::int64_t{0}), 2}, at::kDouble);
  const auto joined_input = [&](int r) {
    std::int64_t rows = 0;
    for (int other = 0; other < size(); ++other) rows += (r + 2 * other) % 3;
    return Tensors{leaf({rows, 2}, r)};
  };
  const auto joined = [&](int r, const std::vector<Tensors>& all) {
    Tensors parts;
    for (int other = 0; other < size(); ++other) {
      std::int64_t first = 0;
      for (int earlier = 0; earlier < r; ++earlier) first += (other + 2 * earlier) % 3;
      parts.push_back(all[static_cast<std::size_t>(other)][0].narrow(0, first, (other + 2 * r) % 3));
    }
    return Tensors{at::cat(parts)};
  };
  check(
      {joined_input,
       [&](const Tensors& mine) { return Tensors{F::all_to_all_single(output, mine[0], from, to, world())}; },
       joined},
      rank(), size());
}

// The verb of collectives.h stays within reach of a program that needs no gradients.
RANKS_TEST(Functional, RefusesWhatHasNoGradient, Ranks(2)) {
  const at::Tensor x = leaf({3}, rank());
  const auto message = [](const char* what) { return ThrowsMessage<InvalidArgument>(HasSubstr(what)); };
  EXPECT_THAT([&] { F::all_reduce(x, ReduceOp::MAX, world()); },
              message("gradients flow through sum and avg only"));
  EXPECT_THAT([&] { F::reduce(x, 0, ReduceOp::PRODUCT, world()); }, message("not product"));
  EXPECT_THAT([&] { F::broadcast(at::Tensor(), 0, world()); }, message("undefined"));
  EXPECT_THAT([&] { F::all_gather(x, ProcessGroup(nullptr, {5, 6})); }, message("not in the group"));
  const at::Tensor most = F::all_reduce(at::full({1}, rank()), ReduceOp::MAX, world());
  EXPECT_TRUE(most.equal(at::full({1}, 1)) && !most.requires_grad());
}

}  // namespace
}  // namespace lockstep
