// Milliseconds of training steps, in intervals that begin with save_checkpoint_async() and in intervals
// without, in turn: an MLP of 8.4 million parameters under Adam, so a checkpoint has 101 MB, and each rank
// has one thread. Prints medians of rank 0: of the steps of intervals without a save, of those during which
// one was being written, of the interval's mean step with a save and without, and of the call itself.
//
//   lockstep run -n 2 build/bench/async_checkpoint [STEPS [FOLDER]]        # of one interval
#include <ATen/Parallel.h>
#include <ATen/ops/randn.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/checkpoint/save_checkpoint.h"
#include "lockstep/comm/collectives/barrier.h"
#include "lockstep/job/job.h"
#include "lockstep/optim/adam.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"

namespace dist = lockstep;
namespace nn = torch::nn;

namespace {

constexpr int WIDTH = 2048, BATCH = 32;
constexpr int INTERVALS = 8;  // of each kind

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Times {
  std::vector<double> plain, writing;                    // of steps
  std::vector<double> without_save, with_save, blocked;  // of intervals, and of the call
};

class Training {
 public:
  Training() : ddp_(net_), optimizer_(ddp_.parameters(), dist::optim::AdamOptions(1e-4)) {
    state_.add("model", net_).add("optimizer", optimizer_).add_random_state();
  }

  double step() {
    const auto start = std::chrono::steady_clock::now();
    optimizer_.zero_grad();
    nn::functional::mse_loss(ddp_->forward(x_), x_).backward();
    optimizer_.step();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  }

  void interval(int steps, const std::string& save_to, Times& times) {
    dist::comm::barrier(dist::world()).wait();
    const auto start = std::chrono::steady_clock::now();
    const auto elapsed = [&] {
      return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    };
    if (!save_to.empty()) {
      dist::save_checkpoint_async(save_to, state_, {.step = ++saves_, .keep_last = 2});
      times.blocked.push_back(elapsed());
    }
    for (int i = 0; i < steps; ++i) {
      const double time = step();
      if (save_to.empty()) times.plain.push_back(time);
      if (dist::is_saving_checkpoint()) times.writing.push_back(time);
    }
    (save_to.empty() ? times.without_save : times.with_save).push_back(elapsed() / steps);
    dist::wait_for_checkpoint();
  }

 private:
  nn::Sequential net_{nn::Linear(WIDTH, WIDTH), nn::Tanh(), nn::Linear(WIDTH, WIDTH)};
  dist::DistributedDataParallel<nn::SequentialImpl> ddp_;
  dist::optim::Adam optimizer_;
  dist::CheckpointState state_;
  at::Tensor x_ = at::randn({BATCH, WIDTH});
  std::int64_t saves_ = 0;
};

void measure(int steps, const std::string& folder) {
  dist::init_process_group();
  torch::manual_seed(1);
  Training training;
  Times unmeasured, times;
  training.interval(steps, "", unmeasured);
  training.interval(steps, folder, unmeasured);
  for (int i = 0; i < INTERVALS; ++i) {
    training.interval(steps, "", times);
    training.interval(steps, folder, times);
  }
  if (dist::get_rank() == 0) {
    std::printf(
        "{\"step\": %.3f, \"step_while_writing\": %.3f, \"steps_while_writing\": %zu, "
        "\"interval_step\": %.3f, \"interval_step_with_save\": %.3f, \"blocked\": %.3f}\n",
        median(times.plain), median(times.writing), times.writing.size() / INTERVALS,
        median(times.without_save), median(times.with_save), median(times.blocked));
    std::filesystem::remove_all(folder);
  }
  dist::destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  measure(argc > 1 ? std::atoi(argv[1]) : 100, argc > 2 ? argv[2] : "async-checkpoints");
  return 0;
}
