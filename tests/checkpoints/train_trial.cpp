// A training with everything whose place a checkpoint must keep: mixed precision with a GradScaler, gradients
// accumulated over two batches and compressed with error feedback, momentum, a schedule by step, dropout,
// BatchNorm, augmentation, loader threads, and saves in the middle of an epoch while training goes on.
// Whoever kills it starts it again; at the end it prints the checksum of all that it has.
//
//   lockstep run -n 2 train_trial MNIST_FOLDER CHECKPOINT_FOLDER
#include <ATen/Parallel.h>
#include <torch/nn.h>
#include <torch/utils.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "lockstep/lockstep.h"
#include "lockstep/parallel/gradients/hooks/power_sgd_hook.h"
#include "lockstep/tensor/random_state.h"

namespace dist = lockstep;

namespace {

constexpr std::int64_t IMAGES = 1536;
constexpr int EPOCHS = 3;
constexpr int BATCH = 16;
constexpr int ACCUMULATED = 2;  // batches of each rank in a step
constexpr int SAVE_EVERY = 7;   // steps; not a divisor of an epoch's

struct NetImpl : torch::nn::Module {
  NetImpl()
      : conv(register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 8, 5).stride(2)))),
        bn(register_module("bn", torch::nn::BatchNorm2d(8))),
        drop(register_module("drop", torch::nn::Dropout(0.25))),
        fc(register_module("fc", torch::nn::Linear(8 * 12 * 12, 10))) {}
  at::Tensor forward(const at::Tensor& x) { return fc(drop(torch::relu(bn(conv(x))).flatten(1))); }

  torch::nn::Conv2d conv;
  torch::nn::BatchNorm2d bn;
  torch::nn::Dropout drop;
  torch::nn::Linear fc;
};
TORCH_MODULE(Net);

auto augmented(const dist::MNIST& images) {
  namespace transforms = dist::transforms;
  return transforms::transformed(
      images,
      transforms::Compose({transforms::RandomCrop(28, {.padding = 2}), transforms::ToTensor(),
                           transforms::Normalize(std::vector<double>{dist::MNIST::MEAN},
                                                 std::vector<double>{dist::MNIST::STD})}),
      /*seed=*/3);
}

struct Training {
  explicit Training(const dist::MNIST& images)
      : data(augmented(images)),
        ddp(net),
        optimizer(net->parameters(), dist::optim::SGDOptions(0.05).momentum(0.9).weight_decay(1e-4)),
        scheduler(optimizer, EPOCHS * IMAGES / BATCH / ACCUMULATED),
        sampler(IMAGES, {.seed = 5}) {
    state.add("model", net)
        .add("optimizer", optimizer)
        .add("scheduler", scheduler)
        .add("scaler", scaler)
        .add("sampler", sampler)
        .add_random_state()
        .add_item("virtual_ranks", dist::virtual_rank_item())
        .add_value("losses", losses)
        .add_value("step", step)
        .add_each_rank_value("metrics", metrics_size);
    if (dist::has_virtual_ranks()) return;  // which take no communication hooks
    ddp.register_comm_hook(hook);
    state.add_each_rank("hook", *hook);
  }

  // A step has two batches; the last one makes it.
  template <typename Batches> void train_on(Batches& batches, bool is_last, dist::MetricsFile& metrics) {
    if (!is_last) optimizer.zero_grad();
    std::vector<double> mine;  // of each virtual rank of this process
    for (auto& batch : batches) {
      auto apart = is_last ? std::nullopt : std::make_optional(ddp.no_sync());
      at::Tensor loss;
      {
        const auto mixed = dist::autocast(at::kCPU, at::kBFloat16);
        loss = torch::nn::functional::cross_entropy(ddp->forward(batch.data), batch.target) / ACCUMULATED;
      }
      scaler.scale(loss).backward();
      mine.push_back(loss.item<double>());
    }
    // In the order of the virtual ranks, whatever the number of processes.
    double sum = 0;
    for (const nlohmann::json& some : dist::all_gather_object(dist::world(), nlohmann::json(mine)))
      for (const nlohmann::json& loss : some) sum += loss.get<double>();
    losses.push_back(sum / dist::virtual_world_size());
    metrics.write({{"step", step}, {"loss", losses.back()}});
    metrics_size = metrics.size();
    if (!is_last) return;
    scaler.step(optimizer);
    scaler.update();
    scheduler.step();
    ++step;
  }

  // Of all that the state holds. With virtual ranks a process's own random numbers are of no consequence, and
  // so are the buffers that a process other than the first has between two steps.
  std::string sha256() {
    const bool is_plain = !dist::has_virtual_ranks();
    dist::NamedTensors tensors = net->named_parameters().pairs();
    if (is_plain || dist::get_rank() == 0) tensors = dist::state_dict(*net);
    for (const auto& list : {optimizer.state_dict(), scheduler.state_dict(), scaler.state_dict()})
      tensors.insert(tensors.end(), list.begin(), list.end());
    tensors.emplace_back("losses", torch::tensor(losses, torch::kDouble));
    if (is_plain) tensors.emplace_back("random", dist::get_rng_state());
    return dist::parameters_sha256(tensors);
  }

  decltype(augmented(std::declval<const dist::MNIST&>())) data;
  Net net;
  dist::DistributedDataParallel<NetImpl> ddp;
  std::shared_ptr<dist::PowerSgdHook> hook =
      std::make_shared<dist::PowerSgdHook>(dist::PowerSgdOptions{.start_powerSGD_iter = 5});
  dist::optim::SGD optimizer;
  dist::optim::CosineAnnealingLR scheduler;
  dist::GradScaler scaler;
  dist::DistributedSampler sampler;
  std::vector<double> losses;
  std::int64_t step = 0;
  std::uint64_t metrics_size = 0;  // bytes; of rank 0, which alone writes
  dist::CheckpointState state;
};

void run(const std::string& data, const std::string& folder) {
  dist::init_process_group();
  dist::seed_virtual_ranks(11);
  const dist::MNIST images(data, dist::Split::TRAIN);
  Training training(images);
  const auto loaded = dist::load_checkpoint(folder, training.state, {.missing_ok = true});
  if (dist::get_rank() == 0) std::printf("from step %ld\n", loaded ? static_cast<long>(loaded->step) : 0L);
  const std::string metrics_path = dist::get_rank() == 0 ? folder + ".jsonl" : "";
  dist::MetricsFile metrics(metrics_path, training.metrics_size);
  auto loader = dist::make_data_loader(training.data, training.sampler, {.batch_size = BATCH, .workers = 2});
  for (auto epoch = training.sampler.epoch(); epoch < EPOCHS; ++epoch) {
    training.sampler.set_epoch(epoch);
    int number = 0;
    for (auto& batches : dist::virtual_steps(loader)) {
      const bool is_last = ++number % ACCUMULATED == 0;
      training.train_on(batches, is_last, metrics);
      if (is_last && training.step % SAVE_EVERY == 0)
        dist::save_checkpoint_async(folder, training.state, {.step = training.step, .keep_last = 3});
    }
  }
  dist::wait_for_checkpoint();
  const std::vector<std::string> all = dist::all_gather_object(dist::world(), training.sha256());
  if (dist::get_rank() == 0)
    for (std::size_t rank = 0; rank < all.size(); ++rank)
      std::printf("sha256 %zu %s\n", rank, all[rank].c_str());
  dist::destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 64;
  at::set_num_threads(1);
  try {
    run(argv[1], argv[2]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_trial: %s\n", error.what());
    return 1;
  }
  return 0;
}
