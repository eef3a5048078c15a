// A training of GPT-2 that says how much memory it took: one line of JSON per rank. Run by memory_test.py.
//
//   lockstep run -n 2 memory_trial WRAPPER WIDTH FOLDER      WRAPPER: ddp, sharded, meta (meta_init) or
//   stage2
//
// "pss", "shared", "private"  what the kernel charges this process with (smaps_rollup), less what it was
// before
//                             the model: its private memory, its part of what several processes map, and
//                             both.
// "data"                      VmData: what RLIMIT_DATA limits, the private memory that a process may write
// to. "peak"                      how far VmHWM rose while the model was constructed and placed.
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "lockstep/checkpoint/full_state_dict.h"
#include "lockstep/comm/collectives/barrier.h"
#include "lockstep/job/job.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/optim/adam.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/parallel/zero/sharded_data_parallel.h"
#include "lockstep/tensor/caching_allocator.h"
#include "lockstep/tensor/meta_init.h"

namespace {

namespace models = lockstep::models;

// Lines of "Name: 123 kB", in bytes.
std::map<std::string, double> sizes_in(const char* path) {
  std::map<std::string, double> sizes;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    const std::size_t digit = line.find_first_of("0123456789", colon);
    if (colon == std::string::npos || digit == std::string::npos || !line.ends_with("kB")) continue;
    sizes[line.substr(0, colon)] = 1024.0 * std::stod(line.substr(digit));
  }
  return sizes;
}

// Without pages of files, such as libraries, which the kernel drops and reads again as it likes.
struct Memory {
  double shared = 0, unshared = 0;
};
Memory memory() {
  lockstep::empty_cache();
  const auto sizes = sizes_in("/proc/self/smaps_rollup");
  return {.shared = sizes.at("Pss_Shmem"), .unshared = sizes.at("Pss_Anon")};
}

constexpr int STEPS = 2;

void train(auto& model, auto& optimizer) {
  for (int step = 0; step < STEPS; ++step) {
    const at::Tensor tokens = torch::randint(256, {1, 17}, at::kLong);
    const at::Tensor logits = model->forward(tokens.slice(1, 0, 16));
    models::next_token_loss(logits, tokens.slice(1, 1)).backward();
    optimizer.step();
  }
}

// How far the largest resident memory rises between begin() and end().
struct Peak {
  double rise = 0;

  void begin() {
    std::ofstream("/proc/self/clear_refs") << 5;  // VmHWM begins anew
    rise = -sizes_in("/proc/self/status").at("VmHWM");
  }
  void end() { rise += sizes_in("/proc/self/status").at("VmHWM"); }
};

class Trial {
 public:
  Trial(std::string wrapper, std::int64_t width, std::string folder)
      : wrapper_(std::move(wrapper)), folder_(std::move(folder)) {
    config_.vocab_size = 256;
    config_.n_positions = 64;
    config_.n_embd = width;
    config_.n_layer = 4;
    config_.n_head = 4;
  }

  void run() {
    warm_up();
    before_ = memory();
    construction_.begin();
    torch::manual_seed(1);
    if (wrapper_ == "meta" || wrapper_ == "stage2") {
      shard(lockstep::meta_init([this] { return models::GPT2(config_); }));
    } else if (wrapper_ == "sharded") {
      shard(models::GPT2(config_));
    } else {
      replicate(models::GPT2(config_));
    }
  }

 private:
  // What libraries take once, for kernels and threads, is no part of a model.
  void warm_up() {
    models::GPT2Config small = config_;
    small.n_embd = 64;
    lockstep::DistributedDataParallel model{models::GPT2(small)};
    lockstep::optim::AdamW optimizer(model.parameters(), lockstep::optim::AdamWOptions(1e-3));
    train(model, optimizer);
  }

  void shard(const models::GPT2& net) {
    lockstep::ShardedDataParallelOptions options;
    if (wrapper_ == "stage2") options = {.stage = 2, .bucket_cap_mb = 1};
    lockstep::ShardedDataParallel model(net, options);
    construction_.end();
    auto optimizer = model.optimizer<lockstep::optim::AdamW>(lockstep::optim::AdamWOptions(1e-3));
    train(model, optimizer);
    measure(*net);
    Peak writing;
    writing.begin();
    lockstep::write_full_state_dict(folder_ + "/model.safetensors", model);
    lockstep::write_full_state_dict(folder_ + "/optimizer.safetensors", optimizer);
    writing.end();
    said_["written"] = writing.rise;
    std::puts(said_.dump().c_str());
  }

  void replicate(const models::GPT2& net) {
    lockstep::DistributedDataParallel model(net);
    construction_.end();
    lockstep::optim::AdamW optimizer(model.parameters(), lockstep::optim::AdamWOptions(1e-3));
    train(model, optimizer);
    measure(*net);
    std::puts(said_.dump().c_str());
  }

  void measure(const torch::nn::Module& net) {
    double bytes = 0, largest = 0, sum = 0;
    for (const at::Tensor& parameter : net.parameters()) {
      bytes += static_cast<double>(parameter.nbytes());
      largest = std::max(largest, static_cast<double>(parameter.nbytes()));
      sum += parameter.detach().sum(at::kDouble).item<double>();
    }
    lockstep::comm::barrier(lockstep::world()).wait();  // all have trained, and nobody has begun to leave
    const Memory now = memory();
    lockstep::comm::barrier(lockstep::world()).wait();
    said_ = {{"rank", lockstep::world().rank()},
             {"bytes", bytes},
             {"largest", largest},
             {"sum", sum},
             {"pss", now.shared + now.unshared - before_.shared - before_.unshared},
             {"shared", now.shared - before_.shared},
             {"private", now.unshared - before_.unshared},
             {"data", sizes_in("/proc/self/status").at("VmData")},
             {"peak", construction_.rise}};
  }

  const std::string wrapper_, folder_;
  models::GPT2Config config_;
  Memory before_;
  Peak construction_;
  nlohmann::json said_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 64;
  try {
    at::set_num_threads(1);
    lockstep::init_process_group();
    Trial(argv[1], std::stoll(argv[2]), argv[3]).run();
    lockstep::destroy_process_group();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "memory_trial: %s\n", error.what());
    return 1;
  }
}
