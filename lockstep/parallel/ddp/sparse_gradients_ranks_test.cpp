// Sparse gradients travel as rows and are averaged like all others. Only exact values.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/collectives/barrier.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr int ROWS = 1000;
constexpr int TABLE_WIDTH = 3;

using Rows = std::vector<std::int64_t>;

struct TableImpl : torch::nn::Module {
  TableImpl() {
    register_module("scale", scale);
    register_module("table", table);
  }
  // Element [i] of the gradient of a row is how often the row was looked up, times the scale's weight, which
  // is one.
  torch::Tensor forward(const Rows& rows) {
    return scale(table(torch::tensor(rows)).sum(0).unsqueeze(0)).sum();
  }
  torch::nn::Linear scale{torch::nn::LinearOptions(TABLE_WIDTH, 1).bias(false)};
  torch::nn::Embedding table{torch::nn::EmbeddingOptions(ROWS, TABLE_WIDTH).sparse(true)};
};
TORCH_MODULE(Table);

Table make_table() {
  Table net;
  const torch::NoGradGuard no_grad;
  net->scale->weight.fill_(1);
  return net;
}

// What one process would have, dense: rank r looks up row r twice and the last one once.
torch::Tensor expected(int size, double times = 1) {
  torch::Tensor mean = torch::zeros({ROWS, TABLE_WIDTH});
  for (int r = 0; r < size; ++r) mean[r] += static_cast<float>(2 * times) / static_cast<float>(size);
  mean[ROWS - 1] += times;
  return mean;
}

RANKS_TEST(SparseGradients, AreAveragedAsRows, Ranks(1, 2, 3, 4), EveryBackend()) {
  Table net = make_table();
  DistributedDataParallel ddp(net, {.process_group = world(), .bucket_cap_mb = 1e-6});
  for (std::uint64_t step = 1; step <= 3; ++step) {
    net->zero_grad();
    ddp.forward(Rows{rank(), ROWS - 1, rank()}).backward();
    const torch::Tensor& grad = net->table->weight.grad();
    ASSERT_TRUE(grad.is_sparse());
    EXPECT_TRUE(grad.is_coalesced());
    EXPECT_EQ(grad._nnz(), size() + 1);
    EXPECT_TRUE(torch::equal(grad.to_dense(), expected(size())));
    EXPECT_FALSE(net->scale->weight.grad().is_sparse());
    const std::uint64_t row = sizeof(std::int64_t) + TABLE_WIDTH * sizeof(float);
    EXPECT_EQ(ddp.stats().bytes_sent, step * (2 * row + TABLE_WIDTH * sizeof(float)));
  }
  EXPECT_EQ(ddp.stats().buckets, 1u);
  EXPECT_EQ(ddp.bucket_table(), "#0 float32 12 bytes: scale.weight\nsparse: table.weight\n");
}

RANKS_TEST(SparseGradients, AddUpOverLocalPasses, Ranks(1, 2, 3)) {
  Table net = make_table();
  DistributedDataParallel ddp(net, {.process_group = world()});
  {
    auto guard = ddp.no_sync();
    ddp.forward(Rows{rank(), ROWS - 1, rank()}).backward();
  }
  ddp.forward(Rows{rank(), ROWS - 1, rank()}).backward();
  EXPECT_TRUE(torch::equal(net->table->weight.grad().to_dense(), expected(size(), 2)));
}

struct OptionalTableImpl : TableImpl {
  torch::Tensor forward(const Rows& rows) {
    return rows.empty() ? scale(torch::ones({1, TABLE_WIDTH})).sum() : TableImpl::forward(rows);
  }
};
TORCH_MODULE(OptionalTable);

void expect_unused_rows(DistributedDataParallelOptions options, int rank, int size) {
  OptionalTable net;
  {
    const torch::NoGradGuard no_grad;
    net->scale->weight.fill_(1);
  }
  DistributedDataParallel ddp(net, options);
  const bool is_static = options.static_graph;
  for (int step = 0; step < 3; ++step) {
    net->zero_grad();
    const bool used = rank == 0 && (is_static || step != 1);  // by one rank, in step 1 by none
    ddp.forward(used ? Rows{5} : Rows{}).backward();
    const torch::Tensor& grad = net->table->weight.grad();
    if (step == 1 && !is_static) {
      EXPECT_FALSE(grad.defined());
    } else {
      torch::Tensor mean = torch::zeros({ROWS, TABLE_WIDTH});
      mean[5] = 1.0F / static_cast<float>(size);
      ASSERT_TRUE(grad.defined());
      EXPECT_TRUE(torch::equal(grad.to_dense(), mean)) << "step " << step;
    }
  }
}

RANKS_TEST(SparseGradients, OfRanksThatUseNoRowAreEmpty, Ranks(1, 2, 3)) {
  expect_unused_rows({.process_group = world(), .find_unused_parameters = true}, rank(), size());
  expect_unused_rows({.process_group = world(), .static_graph = true}, rank(), size());
}

torch::Tensor look_up(const torch::Tensor& table, bool sparse) {
  namespace F = torch::nn::functional;
  return F::embedding(torch::tensor({1, 1}), table, F::EmbeddingFuncOptions().sparse(sparse)).sum();
}

RANKS_TEST(SparseGradients, OfTensorsAreDeclaredByName, Ranks(1, 2, 3)) {
  const torch::Tensor table = torch::ones({ROWS, TABLE_WIDTH}, torch::requires_grad());
  DistributedDataParallel ddp(NamedTensors{{"table", table}}, {},
                              {.process_group = world(), .sparse_gradients = {"table"}});
  ddp.forward([&] { return look_up(table, true) * (rank() + 1); }).backward();
  EXPECT_EQ(table.grad()._nnz(), 1);
  EXPECT_EQ(table.grad().to_dense()[1][0].item<float>(), size() + 1);
}

RANKS_TEST(SparseGradients, AreRefusedWhereTheyWereNotExpectedOrAreDense, Ranks(1, 2)) {
  const torch::Tensor table = torch::ones({ROWS, TABLE_WIDTH}, torch::requires_grad());
  const auto wrap = [&](std::vector<std::string> names) {
    return DistributedDataParallel(NamedTensors{{"table", table}}, {},
                                   {.process_group = world(), .sparse_gradients = std::move(names)});
  };
  EXPECT_THAT([&] { wrap({"tabel"}); }, ThrowsMessage<InvalidArgument>(HasSubstr(
                                            "sparse_gradients names \"tabel\", which is not a parameter")));
  auto ddp = wrap({});
  auto loss = ddp.forward([&] { return look_up(table, true); });
  comm::barrier(world());  // the first that refuses ends the group
  EXPECT_THAT([&] { loss.backward(); },
              ThrowsMessage<InvalidArgument>(
                  AllOf(HasSubstr("\"table\""), HasSubstr("name it in sparse_gradients"))));
}

RANKS_TEST(SparseGradients, ThatAreDenseAreRefused, Ranks(1, 2)) {
  const torch::Tensor table = torch::ones({ROWS, TABLE_WIDTH}, torch::requires_grad());
  DistributedDataParallel ddp(NamedTensors{{"table", table}}, {},
                              {.process_group = world(), .sparse_gradients = {"table"}});
  auto loss = ddp.forward([&] { return look_up(table, false); });
  comm::barrier(world());  // the first that refuses ends the group
  EXPECT_THAT([&] { loss.backward(); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("\"table\""), HasSubstr("gradient is dense"))));
}

}  // namespace
}  // namespace lockstep
