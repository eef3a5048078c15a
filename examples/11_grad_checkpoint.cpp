// Gradient checkpointing inside DistributedDataParallel: the activations of a deep network are computed again
// in backward instead of kept. Trains the same network both ways and shows that the weights are the same, and
// how much was kept.
//
//   build/lockstep run -n 2 build/examples/grad_checkpoint
//   build/examples/grad_checkpoint --spawn 2                      # the same without the launcher
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <cstdio>
#include <vector>

#include "examples/checkpoints.h"
#include "lockstep/lockstep.h"

namespace dist = lockstep;
namespace nn = torch::nn;

namespace {

constexpr int LAYERS = 16, WIDTH = 32;

struct LayerImpl : nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x + dropout(torch::tanh(linear(x))); }
  nn::Linear linear = register_module("linear", nn::Linear(WIDTH, WIDTH));
  nn::Dropout dropout = register_module("dropout", nn::Dropout(0.1));
};
TORCH_MODULE(Layer);

struct DeepNetImpl : nn::Module {
  explicit DeepNetImpl(bool use_checkpoint) : checkpointed(use_checkpoint) {
    for (int i = 0; i < LAYERS; ++i) layers.push_back(register_module("layer" + std::to_string(i), Layer()));
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& layer : layers) x = checkpointed ? dist::checkpoint(layer, x) : layer(x);
    return fc(x);
  }
  bool checkpointed;
  std::vector<Layer> layers;
  nn::Linear fc = register_module("fc", nn::Linear(WIDTH, 1));
};
TORCH_MODULE(DeepNet);

// Trains from one seed; returns a checksum of the weights, and the numbers kept for backward in the last
// step. What it saves for a later run lies in a folder of its own.
std::pair<std::string, std::int64_t> train(bool use_checkpoint, CheckpointOptions options) {
  dist::set_seed(3);
  DeepNet net(use_checkpoint);
  dist::DistributedDataParallel ddp(net);
  torch::optim::SGD optimizer(ddp.parameters(), 0.01);
  dist::set_seed(4, dist::get_rank());  // from here on each rank has its own data and dropout
  std::int64_t kept = 0;
  if (!options.dir.empty()) options.dir += use_checkpoint ? "/checkpointed" : "/plain";
  Checkpoints checkpoints(options);
  checkpoints.state.add("model", net).add("optimizer", optimizer).add_value("kept", kept);
  checkpoints.resume();
  while (checkpoints.step() < 20) {
    optimizer.zero_grad();
    const at::Tensor x = torch::randn({64, WIDTH});
    at::Tensor loss;
    {
      kept = 0;
      const auto count = dist::saved_tensors_hooks([&](const at::Tensor& tensor) {
        kept += tensor.numel();
        return [tensor] { return tensor; };
      });
      loss = nn::functional::mse_loss(ddp->forward(x), x.sum(1, /*keepdim=*/true).tanh());
    }
    loss.backward();
    optimizer.step();
    checkpoints.after_step();
  }
  return {dist::parameters_sha256(net->named_parameters().pairs()), kept};
}

void run(const CheckpointOptions& options) {
  dist::init_process_group();
  const auto [plain, kept_plain] = train(false, options);
  const auto [checkpointed, kept_checkpointed] = train(true, options);
  if (dist::get_rank() == 0) {
    std::printf("kept for backward: %lld numbers, with checkpoint %lld\n", static_cast<long long>(kept_plain),
                static_cast<long long>(kept_checkpointed));
    std::printf("the weights are %s\n", plain == checkpointed ? "the same" : "different");
  }
  if (plain != checkpointed || !dist::all_ranks_hold(plain)) throw std::runtime_error("the weights differ");
  if (kept_checkpointed * 2 > kept_plain) throw std::runtime_error("checkpoint kept too much");
}

}  // namespace

int main(int argc, char** argv) { return run_training(argc, argv, run); }
