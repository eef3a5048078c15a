// Training steps of a GPT-2 on a GPU: bfloat16 autocast, AdamW, 8 sequences of 512 tokens a rank, on data
// made once.
//
//   lockstep run -n 1 --no-affinity build/bench/gpu_step MODE small|medium STEPS
//
// MODE  alone      libtorch's AdamW, no group
//       own        Lockstep's AdamW, no group
//       ddp        DistributedDataParallel over NCCL and Lockstep's AdamW
//       zero1      ShardedDataParallel, also zero2 and zero3
//       offload    zero2, and the optimiser's state lies in the host's memory
//       offload3   zero3, and the parameters lie there, too
//
// Prints one JSON object a rank: the median and the least milliseconds of a step, of groups of five; those of
// one step of the optimiser by itself; the MiB of the GPU's memory that libtorch's allocator gave out at
// most; the loss at the end. bench/peers/gpu_step.py is the same in Python.
#include <ATen/DeviceAccelerator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/optim/adamw.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/autograd/autocast.h"
#include "lockstep/job/job.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/optim/adam.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/parallel/zero/sharded_data_parallel.h"

namespace dist = lockstep;
namespace models = lockstep::models;

namespace {

constexpr int BATCH = 8, TOKENS = 512, GROUP = 5;

models::GPT2Config config_of(const std::string& size) {
  models::GPT2Config config = size == "medium" ? models::GPT2Config::medium() : models::GPT2Config::small();
  config.n_positions = TOKENS;
  config.embd_pdrop = config.attn_pdrop = config.resid_pdrop = 0;
  return config;
}

class Training {
 public:
  Training(const std::string& mode, const std::string& size) : net_(config_of(size)) {
    device_ = at::Device(at::kCUDA,
                         static_cast<at::DeviceIndex>(mode_has_group(mode) ? dist::get_local_rank() : 0));
    net_->to(device_);
    tokens_ = torch::randint(net_->config().vocab_size, {BATCH, TOKENS + 1}, torch::kLong).to(device_);
    const auto options = dist::optim::AdamWOptions(1e-4);
    if (mode == "alone") {
      optimizer_ =
          std::make_unique<torch::optim::AdamW>(net_->parameters(), torch::optim::AdamWOptions(1e-4));
    } else if (mode == "own") {
      optimizer_ = std::make_unique<dist::optim::AdamW>(net_->parameters(), options);
    } else if (mode == "ddp") {
      ddp_.emplace(net_);
      optimizer_ = std::make_unique<dist::optim::AdamW>(net_->parameters(), options);
    } else {
      dist::ShardedDataParallelOptions sharded;
      sharded.stage = mode == "offload" ? 2 : mode == "offload3" ? 3 : mode.back() - '0';
      if (mode.starts_with("offload"))
        sharded.offload = dist::OffloadOptions{.parameters = mode == "offload3"};
      sharded_.emplace(net_, sharded);
      optimizer_.reset(new auto(sharded_->optimizer<dist::optim::AdamW>(options)));
    }
  }

  static bool mode_has_group(const std::string& mode) { return mode != "alone" && mode != "own"; }

  void step() {
    backward();
    optimizer_->step();
  }

  void backward() {
    optimizer_->zero_grad();
    const at::Tensor x = tokens_.narrow(1, 0, TOKENS);
    {
      const auto mixed = dist::autocast(at::kCUDA, at::kBFloat16);
      const at::Tensor logits = ddp_ ? ddp_->forward(x) : sharded_ ? sharded_->forward(x) : net_->forward(x);
      loss_ = models::next_token_loss(logits, tokens_.narrow(1, 1, TOKENS));
    }
    loss_.backward();
  }

  void measure(int steps) {
    std::vector<double> times;
    for (int i = -1; i < steps / GROUP; ++i) {
      const auto start = std::chrono::steady_clock::now();
      for (int k = 0; k < GROUP; ++k) step();
      synchronize();
      const std::chrono::duration<double, std::milli> passed = std::chrono::steady_clock::now() - start;
      if (i >= 0) times.push_back(passed.count() / GROUP);
    }
    std::sort(times.begin(), times.end());
    backward();
    synchronize();
    const auto start = std::chrono::steady_clock::now();
    optimizer_->step();
    synchronize();
    const std::chrono::duration<double, std::milli> of_step = std::chrono::steady_clock::now() - start;
    const auto stats = at::accelerator::getDeviceStats(device_.index());
    std::printf(
        "{\"ms\": %.2f, \"least_ms\": %.2f, \"optimizer_ms\": %.2f, \"gpu_mib\": %.0f, \"loss\": %.3f}\n",
        times[times.size() / 2], times.front(), of_step.count(),
        static_cast<double>(stats.allocated_bytes[0].peak) / (1 << 20), loss_.item<double>());
  }

 private:
  void synchronize() const { c10::impl::VirtualGuardImpl(at::kCUDA).synchronizeDevice(device_.index()); }

  models::GPT2 net_;
  at::Device device_ = at::kCPU;
  at::Tensor tokens_, loss_;
  std::optional<dist::DistributedDataParallel<models::GPT2Impl>> ddp_;
  std::optional<dist::ShardedDataParallel<models::GPT2Impl>> sharded_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 || std::atoi(argv[3]) < GROUP) {
    std::fprintf(stderr,
                 "usage: gpu_step alone|own|ddp|zero1|zero2|zero3|offload|offload3 small|medium STEPS\n");
    return 64;
  }
  torch::manual_seed(1);
  if (Training::mode_has_group(argv[1])) dist::init_process_group("nccl");
  Training(argv[1], argv[2]).measure(std::atoi(argv[3]));
  if (dist::is_initialized()) dist::destroy_process_group();
  return 0;
}
