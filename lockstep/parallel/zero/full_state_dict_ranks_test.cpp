// The whole state of models and optimisers of which ranks hold parts, beside DistributedDataParallel's, which
// every rank holds whole, and read by Python.
#include "lockstep/checkpoint/full_state_dict.h"

#include <gmock/gmock.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <map>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/optim/adam.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/parallel/zero/sharded_data_parallel.h"
#include "lockstep/parallel/zero/zero_redundancy_optimizer.h"
#include "lockstep/tensor/collectives.h"
#include "lockstep/tensor/state_dict.h"
#include "testing/python.h"
#include "testing/ranks.h"
#include "testing/shared_folder.h"
#include "testing/tensors.h"

namespace lockstep {
namespace full_states {
namespace {

using ::testing::HasSubstr;
using testing::random_values;
using testing::SharedFolder;
using ::testing::ThrowsMessage;

using Layers = torch::nn::SequentialImpl;

// The second weight is cut over ranks, in the middle of a row.
torch::nn::Sequential make_net() {
  torch::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Linear(30, 301), torch::nn::BatchNorm1d(301),
                               torch::nn::Linear(301, 701), torch::nn::Linear(701, 2));
}

// The same inputs on every rank.
template <typename Model, typename Optimizer> void train(Model& model, Optimizer& optimizer) {
  for (std::uint64_t step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    model.forward(random_values({6, 30}, step, at::kFloat)).pow(2).sum().backward();
    optimizer.step();
  }
}

// On rank 0 alone is anything found.
void expect_equal(const NamedTensors& found, const NamedTensors& expected, int rank) {
  if (rank != 0) {
    EXPECT_TRUE(found.empty());
    return;
  }
  std::map<std::string, at::Tensor> by_name(expected.begin(), expected.end());
  EXPECT_EQ(found.size(), by_name.size());
  for (const auto& [name, tensor] : found) {
    ASSERT_TRUE(by_name.contains(name)) << name;
    EXPECT_EQ(tensor.scalar_type(), by_name[name].scalar_type()) << name;
    EXPECT_TRUE(tensor.equal(by_name[name])) << name;
  }
}

RANKS_TEST(FullStateDict, IsThatOfAModelThatEachRankHoldsWhole, Ranks(1, 2, 3, 4), Backends("shm", "tcp")) {
  auto whole = make_net(), parts = make_net();
  DistributedDataParallel<Layers> replica(whole.ptr());
  optim::AdamW replica_optimizer(replica.named_parameters().pairs(), optim::AdamWOptions(1e-2));
  ShardedDataParallel<Layers> model(parts.ptr());
  auto optimizer = model.optimizer<optim::AdamW>(optim::AdamWOptions(1e-2));
  train(model, optimizer);
  train(replica, replica_optimizer);
  expect_equal(full_state_dict(model), state_dict(*whole), rank());
  expect_equal(full_state_dict(optimizer), replica_optimizer.state_dict(), rank());
}

RANKS_TEST(FullStateDict, OfAZeroRedundancyOptimizer, Ranks(1, 3), Backends("shm", "tcp")) {
  auto net = make_net(), other = make_net();
  DistributedDataParallel<Layers> model(net.ptr()), reference(other.ptr());
  ZeroRedundancyOptimizer<optim::AdamW> optimizer(model.parameters(), optim::AdamWOptions(1e-2));
  optim::AdamW whole(reference.parameters(), optim::AdamWOptions(1e-2));
  train(model, optimizer);
  train(reference, whole);
  expect_equal(full_state_dict(optimizer), whole.state_dict(), rank());
}

constexpr const char* READ = R"(
import sys
from safetensors.numpy import load_file
model, optimizer = load_file(sys.argv[1]), load_file(sys.argv[2])
print(float(model["2.weight"].astype("float64").sum()))
for name, array in sorted({**model, **optimizer}.items()):
    print(name, array.shape, array.dtype)
)";

RANKS_TEST(FullStateDict, IsAFileForPython, Ranks(1, 4), Backends("shm")) {
  const SharedFolder folder(world());
  auto net = make_net();
  ShardedDataParallel<Layers> model(net.ptr());
  auto optimizer = model.optimizer<optim::AdamW>(optim::AdamWOptions(1e-2));
  train(model, optimizer);
  const std::string path = folder.path() + "/model.safetensors";
  write_full_state_dict(path, model);
  write_full_state_dict(folder.path() + "/optimizer.safetensors", optimizer);
  expect_equal(rank() == 0 ? load_tensors(path) : NamedTensors(), state_dict(*net), rank());
  if (rank() != 0) return;
  const std::string said = testing::run_python(READ, {path, folder.path() + "/optimizer.safetensors"});
  EXPECT_NEAR(std::stod(said), net->named_parameters()["2.weight"].sum(at::kDouble).item<double>(), 1e-6);
  EXPECT_THAT(said, HasSubstr("\n2.weight (701, 301) float32\n"));
  EXPECT_THAT(said, HasSubstr("\n1.num_batches_tracked () int64\n"));
  EXPECT_THAT(said, HasSubstr("\nstate.2.weight.exp_avg (701, 301) float32\n"));
}

// Rank 0's failure is everybody's, and nobody waits for somebody who has left.
RANKS_TEST(FullStateDict, FailsOnAllRanksAlike, Ranks(1, 3), Backends("shm", "tcp")) {
  auto net = make_net();
  ShardedDataParallel<Layers> model(net.ptr());
  EXPECT_THAT([&] { write_full_state_dict("/nonexistent/folder/model.safetensors", model); },
              ThrowsMessage<SystemError>(HasSubstr("/nonexistent/folder")));
  int visits = 0;
  EXPECT_THAT(
      [&] {
        visit_full_state_dict(model, [&](const std::string& /*name*/, const at::Tensor& /*tensor*/) {
          if (++visits == 2) throw InvalidArgument("enough");
        });
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("enough")));
  EXPECT_EQ(visits, rank() == 0 ? 2 : 0);
  at::Tensor one = at::ones({1});
  all_reduce(one);
  EXPECT_EQ(one.item<float>(), static_cast<float>(size()));
}

}  // namespace
}  // namespace full_states
}  // namespace lockstep
