// ShardedDataParallel with its state, and its parameters, in files, beside the same one in memory, bit for
// bit.
#include <gmock/gmock.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/lamb.h"
#include "lockstep/parallel/zero/sharded_data_parallel.h"
#include "testing/ranks.h"
#include "testing/shared_folder.h"
#include "testing/tensors.h"

namespace lockstep {
namespace offload {
namespace {

using testing::SharedFolder;

// Whether a file of the folder is mapped, with or without a name.
bool maps_a_file_in(const std::string& folder) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(folder + "/") != std::string::npos) return true;
  }
  return false;
}

template <typename Optimizer, typename Options>
std::vector<at::Tensor> train(const Options& options, const ShardedDataParallelOptions& sharding, int rank) {
  torch::manual_seed(3);
  torch::nn::Sequential net(torch::nn::Linear(30, 701), torch::nn::Linear(701, 901),
                            torch::nn::Linear(901, 2));
  net->to(at::kBFloat16);
  ShardedDataParallel model(net, sharding);
  auto optimizer = model.template optimizer<Optimizer>(options);
  for (std::uint64_t step = 0; step < 3; ++step) {
    const at::Tensor x =
        testing::random_values({4, 30}, 10 * step + static_cast<std::uint64_t>(rank), at::kBFloat16);
    model->forward(x).to(at::kFloat).pow(2).mean().backward();
    if (step == 1) model.clip_grad_norm_(0.1);
    optimizer.step();
  }
  if (sharding.offload) EXPECT_TRUE(maps_a_file_in(sharding.offload->folder)) << "nothing is offloaded";
  std::vector<at::Tensor> values;
  for (const at::Tensor& parameter : net->parameters()) values.push_back(parameter.detach().clone());
  return values;
}

template <typename Optimizer, typename Options>
void expect_same_bits(const ProcessGroup& group, const Options& options, int rank) {
  const SharedFolder folder(group);
  for (const bool masters : {false, true}) {
    const auto expected = train<Optimizer>(options, {.master_weights = masters}, rank);
    for (const bool parameters : {false, true}) {
      const auto values =
          train<Optimizer>(options,
                           {.master_weights = masters,
                            .offload = OffloadOptions{.folder = folder.path(), .parameters = parameters}},
                           rank);
      for (std::size_t i = 0; i < values.size(); ++i)
        EXPECT_TRUE(values[i].equal(expected[i])) << "parameter " << i << ", masters " << masters;
      EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "files have no names";
    }
  }
}

RANKS_TEST(Offload, DoesNotShowInTheBits, Ranks(1, 2, 3, 4), Backends("shm", "hierarchical")) {
  expect_same_bits<optim::AdamW>(world(), optim::AdamWOptions(1e-2), rank());
}
RANKS_TEST(Offload, DoesNotShowInTheBitsOfLambByMessages, Ranks(2), Backends("shm", "tcp")) {
  expect_same_bits<optim::LAMB>(world(), optim::LAMBOptions(1e-2), rank());
}

RANKS_TEST(Offload, NamesWhatItCannotDo, Ranks(1, 2)) {
  const SharedFolder folder(world());
  torch::nn::Linear net(3, 3);
  ShardedDataParallel model(net, {.offload = OffloadOptions{.folder = folder.path()}});
  EXPECT_THROW(model.optimizer<torch::optim::Adam>(torch::optim::AdamOptions(0.1)), InvalidArgument);
}

RANKS_TEST(Offload, NamesAFolderThatIsMissing, Ranks(1, 2)) {
  const SharedFolder folder(world());
  torch::nn::Linear net(3, 3);
  const OffloadOptions missing{.folder = folder / "none", .parameters = true};
  EXPECT_THAT([&] { ShardedDataParallel(net, {.offload = missing}); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr("none")));
}

}  // namespace
}  // namespace offload
}  // namespace lockstep
