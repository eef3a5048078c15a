// The C++ side of cifar10_curve_test.py.
//
//   cifar10_curve batches FOLDER STEPS BATCH SEED OUT.safetensors
//       the augmented batches of examples/cifar10_resnet18
//   lockstep run -n 2 cifar10_curve train IN.safetensors WEIGHTS.safetensors WIDTH cifar|imagenet LR
//       OUT.safetensors
#include <ATen/ops/stack.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/data/cifar.h"
#include "lockstep/data/data_loader.h"
#include "lockstep/data/transforms.h"
#include "lockstep/models/resnet.h"
#include "lockstep/optim/lr_scheduler.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/tensor/collectives.h"
#include "lockstep/tensor/state_dict.h"

namespace {

namespace dist = lockstep;
namespace transforms = lockstep::transforms;

void write_batches(const std::string& folder, std::size_t steps, std::int64_t batch_size, std::uint64_t seed,
                   const std::string& out) {
  const auto train = transforms::transformed(
      dist::CIFAR10(folder, dist::Split::TRAIN, {.train_files = 1}),
      transforms::Compose({transforms::RandomCrop(32, {.padding = 4}), transforms::RandomHorizontalFlip(),
                           transforms::ToTensor(),
                           transforms::Normalize(dist::CIFAR10::MEAN, dist::CIFAR10::STD)}),
      seed);
  dist::DistributedSampler sampler(train.size(), {.num_replicas = 1, .rank = 0, .seed = seed});
  auto loader = dist::make_data_loader(train, sampler, {.batch_size = batch_size, .drop_last = true});
  std::vector<at::Tensor> data;
  std::vector<at::Tensor> target;
  for (int epoch = 0; data.size() < steps; ++epoch) {
    sampler.set_epoch(epoch);
    for (auto& batch : loader) {
      if (data.size() == steps) break;
      data.push_back(batch.data);
      target.push_back(batch.target);
    }
  }
  dist::save_state_dict(dist::NamedTensors{{"data", at::stack(data)}, {"target", at::stack(target)}}, out);
}

struct Net {
  std::string weights;  // to begin with
  std::int64_t width;
  dist::models::Stem stem;
};

void train(const std::string& in, const Net& described, double lr, const std::string& out) {
  dist::init_process_group();
  const dist::NamedTensors tensors = dist::load_tensors(in);
  const std::map<std::string, at::Tensor> file(tensors.begin(), tensors.end());
  auto net = dist::models::resnet18({.num_classes = 10, .stem = described.stem, .width = described.width});
  if (dist::get_rank() == 0) dist::load_state_dict(*net, described.weights);  // the others get it from DDP
  dist::DistributedDataParallel ddp(net);
  torch::optim::SGD sgd(ddp.parameters(), torch::optim::SGDOptions(lr).momentum(0.9).weight_decay(5e-4));
  const std::int64_t steps = file.at("data").size(0);
  const std::int64_t share = file.at("data").size(1) / dist::get_world_size();
  dist::optim::CosineAnnealingLR scheduler(sgd, steps);
  std::vector<double> losses;
  for (std::int64_t step = 0; step < steps; ++step) {
    const auto mine = [&](const char* name) {
      return file.at(name)[step].narrow(0, share * dist::get_rank(), share);
    };
    sgd.zero_grad();
    const auto loss = torch::nn::functional::cross_entropy(ddp->forward(mine("data")), mine("target"));
    loss.backward();
    sgd.step();
    scheduler.step();
    const at::Tensor mean = loss.detach().to(at::kDouble);
    dist::all_reduce(mean, dist::ReduceOp::AVG);
    losses.push_back(mean.item<double>());
  }
  if (dist::get_rank() == 0) {
    dist::NamedTensors record = dist::state_dict(*net);
    record.emplace_back("loss", torch::tensor(losses, torch::kDouble));
    dist::save_state_dict(record, out);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  at::set_num_threads(1);
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 6 && words[0] == "batches") {
    write_batches(words[1], std::stoul(words[2]), std::stol(words[3]), std::stoul(words[4]), words[5]);
  } else if (words.size() == 7 && words[0] == "train") {
    const auto stem = words[4] == "imagenet" ? dist::models::Stem::IMAGENET : dist::models::Stem::CIFAR;
    train(words[1], {words[2], std::stol(words[3]), stem}, std::stod(words[5]), words[6]);
  } else {
    return 64;
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "cifar10_curve: %s\n", error.what());
  return 1;
}
