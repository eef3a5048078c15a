// A program in Horovod's interface: ResNet-18 on CIFAR-10 with float16 compression and averaged metrics. It
// is examples/python/horovod_torch.py in C++.
//
//   scripts/download cifar10
//   build/lockstep horovodrun -np 2 build/examples/horovod --epochs 10
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>

#include "examples/command_line.h"
#include "examples/job.h"
#include "lockstep/base/str.h"
#include "lockstep/compat/horovod/horovod.h"
#include "lockstep/lockstep.h"

namespace dist = lockstep;
namespace hvd = lockstep::compat::horovod;
namespace transforms = lockstep::transforms;

namespace {

struct Options {
  std::string data;
  int train_files = 5, epochs = 100, batch_size = 128, workers = 2;
  std::int64_t images = 50'000, width = 64;
};

Options parse(int argc, char** argv) {
  Options o;
  CLI::App app("Trains ResNet-18 on CIFAR-10 through Horovod's interface.", "horovod");
  app.option_defaults()->always_capture_default();
  app.add_option("--data", o.data, "folder with CIFAR-10 (default: where scripts/download puts it)");
  app.add_option("--train-files", o.train_files, "read so many of the five files")->check(CLI::Range(1, 5));
  app.add_option("--images", o.images, "train with only this many images")->check(CLI::PositiveNumber);
  app.add_option("--epochs", o.epochs, "passes over the training images")->check(CLI::PositiveNumber);
  app.add_option("--batch-size", o.batch_size, "images per process and step")->check(CLI::PositiveNumber);
  app.add_option("--workers", o.workers, "threads that prepare batches")->check(CLI::Range(0, 64));
  app.add_option("--width", o.width, "channels of the first stage")->check(CLI::PositiveNumber);
  parse_options(app, argc, argv);
  return o;
}

// Averages a metric over all processes.
double metric_average(double value, const std::string& name) {
  return hvd::allreduce(torch::tensor(value), {.name = name}).item<double>();
}

void run(const Options& o) {
  hvd::init();
  const std::string folder = dist::find_cifar10(o.data, LOCKSTEP_SOURCE_DIR);
  const auto train = transforms::transformed(
      dist::CIFAR10(folder, dist::Split::TRAIN, {.train_files = o.train_files}),
      transforms::Compose({transforms::RandomCrop(32, {.padding = 4}), transforms::RandomHorizontalFlip(),
                           transforms::ToTensor(), transforms::Normalize({0.5, 0.5, 0.5}, {0.5, 0.5, 0.5})}),
      42);
  dist::DistributedSampler sampler(std::min(o.images, train.size()),
                                   {.num_replicas = hvd::size(), .rank = hvd::rank()});
  auto loader = dist::make_data_loader(train, sampler, {.batch_size = o.batch_size, .workers = o.workers});

  torch::manual_seed(42);
  auto net = dist::models::resnet18({.num_classes = 10, .width = o.width});
  torch::optim::SGD sgd(net->parameters(),
                        torch::optim::SGDOptions(0.1 * hvd::size()).momentum(0.9).weight_decay(5e-4));
  hvd::DistributedOptimizer optimizer(sgd, net->named_parameters().pairs(),
                                      {.compression = hvd::Compression::fp16, .op = hvd::Average});
  hvd::broadcast_parameters(*net, 0);
  hvd::broadcast_optimizer_state(sgd, 0);
  for (int epoch = 0; epoch < o.epochs; ++epoch) {
    net->train();
    sampler.set_epoch(epoch);
    double loss_sum = 0, correct = 0, total = 0;
    for (auto& batch : loader) {
      optimizer.zero_grad();
      const at::Tensor output = net->forward(batch.data);
      const at::Tensor loss = torch::nn::functional::cross_entropy(output, batch.target);
      loss.backward();  // gradients are reduced meanwhile
      optimizer.step();
      loss_sum += loss.item<double>();
      correct += output.argmax(1).eq(batch.target).sum().item<double>();
      total += static_cast<double>(batch.target.size(0));
    }
    const double loss = metric_average(loss_sum, "avg_loss");
    const double accuracy = metric_average(correct / total, "avg_accuracy");
    if (hvd::rank() == 0) {
      std::printf("Epoch %d/%d - Loss: %.4f, Accuracy: %.2f%%\n", epoch, o.epochs, loss, 100 * accuracy);
      if ((epoch + 1) % 10 == 0)
        dist::save_state_dict(*net, dist::str("horovod_checkpoint_epoch_", epoch + 1, ".pt"));
    }
  }
  hvd::shutdown();
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  return exit_code_of([&] { run(options); });
}
