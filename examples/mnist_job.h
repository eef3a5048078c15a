// What the MNIST program does besides training: its options, its data, the test, and the comparison with one
// process.
#pragma once

#include <torch/nn/functional/loss.h>
#include <torch/optim/adam.h>
#include <torch/utils.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "examples/checkpoints.h"
#include "examples/command_line.h"
#include "examples/count_correct.h"
#include "examples/simple_cnn.h"
#include "lockstep/lockstep.h"

struct MnistOptions {
  std::string data;
  std::string dataset;
  std::string device = "cpu";  // or "cuda": each rank's own GPU
  int epochs = 3;
  int batch_size = 64;  // per process
  double lr = 1e-3;
  double gamma = 1;
  int crop_padding = 0;
  std::uint64_t seed = 0;
  int workers = 1;
  std::string save_dir = ".";
  std::string metrics;
  bool compare = false;
  CheckpointOptions checkpoints;
};

inline MnistOptions parse_mnist_options(int argc, char** argv) {
  MnistOptions o;
  CLI::App app("Trains a convolutional network on MNIST with every process of the job.", "mnist");
  app.add_option("--data", o.data, "folder with the idx files, plain or .gz (default: found or downloaded)");
  app.add_option("--dataset", o.dataset, "mnist or fashion-mnist")
      ->check(CLI::IsMember({"mnist", "fashion-mnist"}));
  app.add_option("--device", o.device, "cpu, or cuda: a GPU for each process")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  app.add_option("--epochs", o.epochs, "passes over the training set")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  app.add_option("--batch-size", o.batch_size, "images per process and step")
      ->check(CLI::Range(1, 60'000))
      ->capture_default_str();
  app.add_option("--lr", o.lr, "learning rate of Adam")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--gamma", o.gamma, "what the learning rate is multiplied by after each epoch")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--crop-padding", o.crop_padding, "training images are moved by up to so many pixels")
      ->check(CLI::Range(0, 14))
      ->capture_default_str();
  app.add_option("--seed", o.seed, "of initial weights and order of images")->capture_default_str();
  app.add_option("--workers", o.workers, "threads that prepare batches")
      ->check(CLI::Range(0, 64))
      ->capture_default_str();
  app.add_option("--save-dir", o.save_dir, "folder for model.safetensors and model.pt")
      ->capture_default_str();
  app.add_option("--metrics", o.metrics, "file for one JSON object (.csv: row) per epoch and one at the end");
  add_checkpoint_options(app, o.checkpoints);
  app.add_flag("--compare", o.compare,
               "afterwards rank 0 trains the same job alone and says how it compares");
  parse_options(app, argc, argv);
  return o;
}

// Images moved at random: what keeps the network from learning the training set by heart.
inline auto moved_images(const lockstep::MNIST& images, const MnistOptions& options) {
  namespace transforms = lockstep::transforms;
  return transforms::transformed(
      images,
      transforms::Compose({transforms::RandomCrop(28, {.padding = options.crop_padding}),
                           transforms::ToTensor(),
                           transforms::Normalize(std::vector<double>{lockstep::MNIST::MEAN},
                                                 std::vector<double>{lockstep::MNIST::STD})}),
      options.seed);
}

// Where a run is, beside model and optimiser.
struct MnistProgress {
  int epoch = 0;
  double loss_sum = 0;  // of this rank, in this epoch
  double images = 0;
  double seconds = 0;
  double images_per_second = 0;  // the mean over the epochs, so far
  std::uint64_t metrics = 0;     // bytes of the metrics file
};

// What a checkpoint of the run holds.
inline void add_to(lockstep::CheckpointState& state, SimpleCNN& net, torch::optim::Optimizer& optimizer,
                   lockstep::DistributedSampler& sampler, MnistProgress& run) {
  state.add("model", net).add("optimizer", optimizer).add("sampler", sampler).add_value("epoch", run.epoch);
  state.add_each_rank_value("loss_sum", run.loss_sum).add_each_rank_value("images", run.images);
  state.add_each_rank_value("seconds", run.seconds);
  state.add_each_rank_value("images_per_second", run.images_per_second);
  state.add_each_rank_value("metrics", run.metrics);
}

// The learning rate of an epoch, as torch.optim.lr_scheduler.ExponentialLR has it.
inline void set_learning_rate(torch::optim::Optimizer& optimizer, const MnistOptions& options, int epoch) {
  for (auto& group : optimizer.param_groups())
    group.options().set_lr(options.lr * std::pow(options.gamma, epoch));
}

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

inline std::string epoch_line(int epoch, double loss, double test_accuracy, double images_per_second) {
  std::array<char, 200> text = {};
  std::snprintf(text.data(), text.size(),
                "epoch %d: training loss %.4f, test accuracy %.2f %%, %.0f images/s", epoch, loss,
                100 * test_accuracy, images_per_second);
  return text.data();
}

struct JobResult {
  double test_accuracy = 0;
  double images_per_second = 0;
};

// The same job in this process alone, with plain libtorch on the CPU: at each step one batch made of the
// batches of all ranks.
template <lockstep::Dataset Images>
std::string compare_with_one_process(const MnistOptions& options, const Images& train,
                                     const lockstep::MNIST& test, SimpleCNNImpl& trained, JobResult job) {
  const int ranks = lockstep::get_world_size();
  torch::manual_seed(options.seed);
  SimpleCNN net;
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(options.lr));
  double seconds = 0;
  std::int64_t images = 0;
  for (int epoch = 0; epoch < options.epochs; ++epoch) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::vector<std::int64_t>> shares;
    for (int r = 0; r < ranks; ++r) {
      lockstep::DistributedSampler sampler(train.size(),
                                           {.num_replicas = ranks, .rank = r, .seed = options.seed});
      sampler.set_epoch(epoch);
      shares.push_back(sampler.indices());
    }
    set_learning_rate(optimizer, options, epoch);
    const auto length = static_cast<std::ptrdiff_t>(shares[0].size());
    for (std::ptrdiff_t at = 0; at < length; at += options.batch_size) {
      std::vector<std::int64_t> indices;
      const auto end = std::min<std::ptrdiff_t>(at + options.batch_size, length);
      for (const auto& share : shares) indices.insert(indices.end(), share.begin() + at, share.begin() + end);
      const lockstep::Batch batch = lockstep::get_batch(train, indices, epoch);
      optimizer.zero_grad();
      torch::nn::functional::cross_entropy(net->forward(batch.data), batch.target).backward();
      optimizer.step();
      images += static_cast<std::int64_t>(indices.size());
    }
    seconds += seconds_since(start);
  }
  double difference = 0;
  const auto mine = net->parameters();
  const auto theirs = trained.parameters();
  for (std::size_t i = 0; i < mine.size(); ++i) {
    difference = std::max(difference, (mine[i] - theirs[i].cpu()).abs().max().item<double>());
  }
  const double accuracy =
      static_cast<double>(count_correct(*net, test, 0, 1)) / static_cast<double>(test.size());
  const double speed = static_cast<double>(images) / seconds;
  std::array<char, 300> text = {};
  std::snprintf(text.data(), text.size(),
                "one process, %d thread(s): %.0f images/s, accuracy %.2f %%; %d processes: %.2f times as "
                "fast, accuracy %.2f %%, "
                "largest difference of a parameter %.1e",
                torch::get_num_threads(), speed, 100 * accuracy, ranks, job.images_per_second / speed,
                100 * job.test_accuracy, difference);
  return text.data();
}
