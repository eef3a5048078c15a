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
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>

#include "lockstep/base/environment.h"
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
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(dist::job_environment().rank == 0 ? app.exit(error) : error.get_exit_code());
  }
  return o;
}

// Correct answers on this rank's share of the test images, which are cut into the same batches for any number
// of ranks.
std::int64_t count_correct(dist::models::ResNetImpl& net, const dist::CIFAR10& test, torch::Device device) {
  constexpr std::int64_t BATCH = 250;
  const torch::NoGradGuard no_grad;
  net.eval();
  std::int64_t correct = 0;
  for (std::int64_t first = BATCH * dist::get_rank(); first < test.size();
       first += BATCH * dist::get_world_size()) {
    std::vector<std::int64_t> indices(static_cast<std::size_t>(std::min(BATCH, test.size() - first)));
    std::iota(indices.begin(), indices.end(), first);
    const dist::Batch batch = test.get_batch(indices);
    correct += net.forward(batch.data.to(device)).argmax(1).cpu().eq(batch.target).sum().item<std::int64_t>();
  }
  net.train();
  return correct;
}

// One pass over this rank's share of the images: the sum of their losses, and how many they were.
std::pair<double, double> train_epoch(auto& ddp, dist::optim::SGD& sgd, auto& loader, torch::Device device,
                                      dist::Progress& progress) {
  double loss_sum = 0, count = 0;
  for (auto& batch : loader) {
    sgd.zero_grad();
    const auto output = ddp->forward(batch.data.to(device));
    auto loss = torch::nn::functional::cross_entropy(output, batch.target.to(device));
    loss.backward();  // gradients are averaged over the ranks while it runs
    sgd.step();
    const auto size = batch.target.size(0);
    loss_sum += loss.template item<double>() * static_cast<double>(size);
    count += static_cast<double>(size);
    progress.step(loss.template item<double>(), size * dist::get_world_size());
  }
  return {loss_sum, count};
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
  dist::MetricsFile metrics(dist::get_rank() == 0 ? o.metrics : "");
  dist::Progress progress(dist::get_rank() == 0 ? stdout : nullptr,
                          {.total_steps = o.epochs * loader.size(),
                           .unit = "images",
                           .columns = dist::terminal_columns_for_rank_0()});
  for (int epoch = 0; epoch < o.epochs; ++epoch) {
    sampler.set_epoch(epoch);  // *
    const auto start = std::chrono::steady_clock::now();
    const auto [loss_sum, count] = train_epoch(ddp, sgd, loader, o.device, progress);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const auto sums =
        torch::tensor({loss_sum, count, double(count_correct(*net, test, o.device))}, torch::kDouble);
    dist::all_reduce(sums);  // *
    const double loss = sums[0].item<double>() / sums[1].item<double>();
    const double accuracy = sums[2].item<double>() / static_cast<double>(test.size());
    const double speed = sums[1].item<double>() / seconds;
    progress.say(dist::str("epoch ", epoch + 1, ": lr ", scheduler.get_last_lr()[0], ", training loss ", loss,
                           ", test accuracy ", 100 * accuracy, " %, ", std::lround(speed), " images/s"));
    scheduler.step();
    metrics.write({{"train_loss", loss}, {"test_accuracy", accuracy}, {"images_per_second", speed}});
  }
  if (!dist::all_ranks_hold(dist::parameters_sha256(net->named_parameters().pairs())))  // *
    throw std::runtime_error("the ranks' parameters differ");
  if (dist::get_rank() == 0 && !o.save.empty()) dist::save_state_dict(*net, o.save);  // *
  dist::destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) try {
  run(parse(argc, argv));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "cifar10_resnet18: %s\n", error.what());
  return 1;
}
