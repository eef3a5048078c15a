// Trains ResNet-18 on CIFAR-10 with any number of processes: random crop and flip, SGD with momentum, a
// cosine schedule.
//
//   scripts/download cifar10
//   build/lockstep run -n 2 build/examples/cifar10_resnet18 --epochs 30
//
// The lines marked with * are what makes it distributed.
#include <torch/nn/functional/loss.h>
#include <torch/utils.h>

#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "examples/checkpoints.h"
#include "examples/command_line.h"
#include "examples/count_correct.h"
#include "lockstep/base/str.h"
#include "lockstep/lockstep.h"

namespace dist = lockstep;
namespace transforms = lockstep::transforms;

namespace {

struct Options {
  std::string data, metrics, save, device = "cpu";
  int train_files = 5, epochs = 30, batch_size = 128, workers = 2;
  std::int64_t images = 50'000, width = 64;
  double lr = 0.1;
  std::uint64_t seed = 0;
  bool imagenet_stem = false;
  CheckpointOptions checkpoints;
};

Options parse(int argc, char** argv) {
  Options o;
  CLI::App app("Trains ResNet-18 on CIFAR-10 with every process of the job.", "cifar10_resnet18");
  app.option_defaults()->always_capture_default();
  app.add_option("--data", o.data, "folder with CIFAR-10 (default: where scripts/download puts it)");
  app.add_option("--device", o.device, "cuda: a GPU for each process")->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--train-files", o.train_files, "read so many of the five files")->check(CLI::Range(1, 5));
  app.add_option("--images", o.images, "train with only this many images")->check(CLI::PositiveNumber);
  app.add_option("--epochs", o.epochs, "passes over the training images")->check(CLI::PositiveNumber);
  app.add_option("--batch-size", o.batch_size, "images per process and step")->check(CLI::PositiveNumber);
  app.add_option("--lr", o.lr, "learning rate at the beginning")->check(CLI::PositiveNumber);
  app.add_option("--seed", o.seed, "of initial weights, order and augmentation");
  app.add_option("--workers", o.workers, "threads that prepare batches")->check(CLI::Range(0, 64));
  app.add_option("--width", o.width, "channels of the first stage")->check(CLI::PositiveNumber);
  app.add_flag("--imagenet-stem", o.imagenet_stem, "torchvision's stem: faster, less accurate");
  app.add_option("--metrics", o.metrics, "file for one JSON object per epoch");
  app.add_option("--save", o.save, "file for the trained weights, .safetensors or .pt");
  add_checkpoint_options(app, o.checkpoints);
  parse_options(app, argc, argv);
  return o;
}

using Clock = std::chrono::steady_clock;

// Of this rank in this epoch: its losses, its images, and the seconds that they took.
using Sums = std::array<double, 3>;

// One pass over what is left of this rank's share of the images.
void train_epoch(auto& ddp, dist::optim::SGD& sgd, auto& loader, torch::Device device, Sums& sums,
                 Checkpoints& checkpoints, dist::Progress& progress) {
  auto start = Clock::now();
  for (auto& batch : loader) {
    sgd.zero_grad();
    const auto output = ddp->forward(batch.data.to(device));
    auto loss = torch::nn::functional::cross_entropy(output, batch.target.to(device));
    loss.backward();  // gradients are averaged over the ranks while it runs
    sgd.step();
    const auto size = batch.target.size(0);
    sums[0] += loss.template item<double>() * static_cast<double>(size);
    sums[1] += static_cast<double>(size);
    const auto now = Clock::now();
    sums[2] += std::chrono::duration<double>(now - std::exchange(start, now)).count();
    progress.step(loss.template item<double>(), size * dist::get_world_size());
    checkpoints.after_step();
  }
}

void run(const Options& o) {
  dist::init_process_group(o.device == "cuda" ? "nccl" : "auto");  // *
  const std::string folder = dist::find_cifar10(o.data, LOCKSTEP_SOURCE_DIR);
  const dist::CIFAR10 images(folder, dist::Split::TRAIN, {.train_files = o.train_files});
  const dist::CIFAR10 test(folder, dist::Split::TEST);
  const auto train = transforms::transformed(
      images,
      transforms::Compose({transforms::RandomCrop(32, {.padding = 4}), transforms::RandomHorizontalFlip(),
                           transforms::ToTensor(),
                           transforms::Normalize(dist::CIFAR10::MEAN, dist::CIFAR10::STD)}),
      o.seed);

  torch::manual_seed(o.seed);
  const auto stem = o.imagenet_stem ? dist::models::Stem::IMAGENET : dist::models::Stem::CIFAR;
  auto net = dist::models::resnet18({.num_classes = 10, .stem = stem, .width = o.width});
  net->to(o.device);                       // "cuda" is this rank's
  dist::DistributedDataParallel ddp(net);  // *
  dist::optim::SGD sgd(ddp.parameters(), dist::optim::SGDOptions(o.lr).momentum(0.9).weight_decay(5e-4));
  dist::optim::CosineAnnealingLR scheduler(sgd, o.epochs);
  dist::DistributedSampler sampler(std::min(o.images, train.size()), {.seed = o.seed});  // *
  auto loader = dist::make_data_loader(train, sampler, {.batch_size = o.batch_size, .workers = o.workers});

  int epoch = 0;
  Sums sums = {};
  std::uint64_t written = 0;  // bytes of the metrics file
  Checkpoints checkpoints(o.checkpoints);
  checkpoints.state.add("model", net).add("optimizer", sgd).add("scheduler", scheduler);
  checkpoints.state.add("sampler", sampler).add_value("epoch", epoch);
  checkpoints.state.add_each_rank_value("sums", sums).add_each_rank_value("metrics", written);
  checkpoints.resume();
  dist::MetricsFile metrics(dist::get_rank() == 0 ? o.metrics : "", written);
  dist::Progress progress(dist::get_rank() == 0 ? stdout : nullptr,
                          {.total_steps = o.epochs * loader.size(),
                           .unit = "images",
                           .columns = dist::terminal_columns_for_rank_0()});
  for (; epoch < o.epochs; ++epoch, sums = {}) {
    sampler.set_epoch(epoch);  // *
    train_epoch(ddp, sgd, loader, o.device, sums, checkpoints, progress);
    const auto correct = double(count_correct(*net, test, dist::get_rank(), dist::get_world_size()));
    const auto totals = torch::tensor({sums[0], sums[1], correct}, torch::kDouble);
    dist::all_reduce(totals);  // *
    const double loss = totals[0].item<double>() / totals[1].item<double>();
    const double accuracy = totals[2].item<double>() / static_cast<double>(test.size());
    const double speed = totals[1].item<double>() / sums[2];
    progress.say(dist::str("epoch ", epoch + 1, ": lr ", scheduler.get_last_lr()[0], ", training loss ", loss,
                           ", test accuracy ", 100 * accuracy, " %, ", std::lround(speed), " images/s"));
    scheduler.step();
    metrics.write({{"train_loss", loss}, {"test_accuracy", accuracy}, {"images_per_second", speed}});
    metrics.sync();  // the next checkpoint counts on it
    written = metrics.size();
  }
  if (!dist::all_ranks_hold(dist::parameters_sha256(net->named_parameters().pairs())))  // *
    throw std::runtime_error("the ranks' parameters differ");
  if (dist::get_rank() == 0 && !o.save.empty()) dist::save_state_dict(*net, o.save);  // *
  dist::destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  return exit_code_of([&] { run(options); });
}
