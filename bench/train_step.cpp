// Training steps, one thread a process, 64 samples a process (of gpt2 8 of 128 tokens), SGD with momentum, on
// data made once.
//
//   lockstep run -n 2 build/bench/train_step cnn alone 100     # processes that never talk
//   lockstep run -n 2 build/bench/train_step mlp barrier 20    # the same with one barrier a step
//   lockstep run -n 2 build/bench/train_step resnet18 ddp 20   # gradients averaged
//   lockstep run -n 4 build/bench/train_step mlp ddp 20 adamw unused bf16 accumulate=4 hook=bf16_compress
//
//   lockstep run -n 2 build/bench/train_step mlp sharded 20 adamw      # each rank steps its part
//
// sgd, adamw: Lockstep's SGD or AdamW instead of libtorch's SGD. unused: find_unused_parameters. bf16:
// forward and loss under autocast. accumulate: a step is so many batches, and averaged once. hook: how
// gradients travel (make_comm_hook()).
//
// Prints one JSON object per process, over STEPS steps after a fifth as many to warm up: samples per second,
// processor time and page faults per step, and at the end the resident memory (MiB; Pss counts a page of n
// processes 1/n-th). With ddp also, per step, the milliseconds of communication, those of them that backward
// did not hide, and the MiB contributed to averages. LOCKSTEP_ALLOCATOR=off keeps libtorch's allocator in
// every mode. bench/peers/train_step.py is the same in Python.
//
// Expected, and what was seen on 2 cores while others used them, too (processor time per step):
//   blocks in huge pages, carved side by side   5 to 10 % less, as jemalloc with thp:always: 4 to 6 % less
//                                               for the CNN and
//                                               ResNet-18, 2 % for the MLP, whose blocks had huge pages
//                                               before
//   shared segments in huge pages               the MLP's 100 MB of gradients were written to 4 KiB pages: 6
//                                               % less
//   gradients made in their buckets             the copy took 19 of the MLP's 190 ms: 10 % less. ResNet-18
//                                               gained nothing: oneDNN's temporaries have the size of a
//                                               weight and took the offers first
//   one backward watched, temporaries let by    ResNet-18's 45 MB are not copied either: 6.6 of about 120 ms
//   sgd: five passes over memory, not eight     MLP: 208 to 165 of its ms; ResNet-18 and the CNN: less than
//                                               runs differ there
#include <ATen/Parallel.h>
#include <sys/resource.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/models.h"
#include "examples/simple_cnn.h"
#include "lockstep/autograd/autocast.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/models/resnet.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/parallel/gradients/hooks/hook_registry.h"
#include "lockstep/parallel/zero/sharded_data_parallel.h"
#include "lockstep/tensor/caching_allocator.h"
#include "lockstep/tensor/collectives.h"

namespace {

constexpr int BATCHES = 16;

// What a model is given, and what it answers.
struct Task {
  std::int64_t batch = 64;
  std::vector<std::int64_t> sample;
  bool is_text = false;  // tokens, each of which is followed by one of as many classes
  std::int64_t classes = 10;
};
constexpr std::int64_t TOKENS = 128, VOCABULARY = 256;

struct Usage {
  std::chrono::steady_clock::time_point time = std::chrono::steady_clock::now();
  double cpu_ms = 1e3 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  long faults = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
  }();
};

// A line of the kernel's summary of this process's memory, "Rss" or "Pss", in MiB.
double resident_mib(const std::string& what) {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(what + ":")) return std::atof(line.c_str() + what.size() + 1) / 1024;
  }
  return -1;
}

struct Arguments {
  std::string model;
  std::string mode;
  int steps = 0;
  std::string optimizer;  // empty: libtorch's SGD
  bool unused = false;
  bool bf16 = false;
  int accumulate = 1;
  std::string hook;
};

std::optional<Arguments> parse(int argc, char** argv) {
  if (argc < 4) return std::nullopt;
  Arguments arguments{.model = argv[1], .mode = argv[2], .steps = std::atoi(argv[3])};
  for (int i = 4; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "sgd" || word == "adamw") {
      arguments.optimizer = word;
    } else if (word == "unused") {
      arguments.unused = true;
    } else if (word == "bf16") {
      arguments.bf16 = true;
    } else if (word.starts_with("accumulate=")) {
      arguments.accumulate = std::atoi(argv[i] + word.find('=') + 1);
    } else if (word.starts_with("hook=")) {
      arguments.hook = word.substr(word.find('=') + 1);
    } else {
      return std::nullopt;
    }
  }
  const auto& [model, mode, steps, optimizer, unused, bf16, accumulate, hook] = arguments;
  const bool model_is_known = model == "cnn" || model == "resnet18" || model == "mlp" || model == "gpt2";
  const bool mode_is_known = mode == "alone" || mode == "barrier" || mode == "ddp" || mode == "sharded";
  if (!model_is_known || !mode_is_known || steps < 1 || accumulate < 1) return std::nullopt;
  return arguments;
}

struct Communication {  // of all steps
  double seconds = 0;
  double exposed = 0;
  double mib = 0;
};

void print(const Arguments& arguments, std::int64_t batch, const Usage& start, const Usage& end,
           const Communication& communication) {
  const double seconds = std::chrono::duration<double>(end.time - start.time).count();
  const double steps = arguments.steps;
  std::printf(
      "{\"samples_per_second\": %.2f, \"cpu_ms_per_step\": %.3f, \"faults_per_step\": %.1f, "
      "\"rss_mib\": %.1f, \"pss_mib\": %.1f",
      static_cast<double>(batch * arguments.accumulate) * steps / seconds,
      (end.cpu_ms - start.cpu_ms) / steps, static_cast<double>(end.faults - start.faults) / steps,
      resident_mib("Rss"), resident_mib("Pss"));
  if (arguments.mode == "ddp") {
    std::printf(", \"communication_ms\": %.3f, \"exposed_ms\": %.3f, \"mib_sent\": %.3f",
                1e3 * communication.seconds / steps, 1e3 * communication.exposed / steps,
                communication.mib / steps);
  }
  std::printf("}\n");
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const std::string& name,
                                                        const std::vector<torch::Tensor>& parameters) {
  const auto sgd = torch::optim::SGDOptions(1e-3).momentum(0.9);
  if (name == "adamw") return std::make_unique<lockstep::optim::AdamW>(parameters);
  if (name == "sgd") return std::make_unique<lockstep::optim::SGD>(parameters, sgd);
  return std::make_unique<torch::optim::SGD>(parameters, sgd);
}

template <typename Model> class Training {
 public:
  Training(Model model, Task task, const Arguments& arguments)
      : model_(std::move(model)), task_(std::move(task)), arguments_(arguments) {
    if (arguments.mode == "ddp") {
      ddp_.emplace(model_,
                   lockstep::DistributedDataParallelOptions{.find_unused_parameters = arguments.unused});
      if (!arguments.hook.empty()) ddp_->register_comm_hook(lockstep::make_comm_hook(arguments.hook));
    }
    if (arguments.mode == "sharded") {
      shard();
    } else {
      optimizer_ = make_optimizer(arguments.optimizer, model_->parameters());
    }
    auto shape = task_.sample;
    shape.insert(shape.begin(), task_.batch);
    for (int i = 0; i < BATCHES; ++i) {
      data_.push_back(task_.is_text ? torch::randint(task_.classes, shape, torch::kLong)
                                    : torch::randn(shape));
      target_.push_back(
          torch::randint(task_.classes, {task_.is_text ? task_.batch * TOKENS : task_.batch}, torch::kLong));
    }
  }

  void measure() {
    const int warm_up = (arguments_.steps + 4) / 5;
    Usage start;
    for (int i = 0; i < warm_up + arguments_.steps; ++i) {
      if (i == warm_up) {
        if (arguments_.mode != "alone") lockstep::barrier();
        communication_ = {.mib = -sent_mib()};
        start = Usage();
      }
      step();
    }
    const Usage end;
    communication_.mib += sent_mib();
    if (arguments_.mode != "alone")
      lockstep::barrier();  // memory is looked at while all ranks still have theirs
    print(arguments_, task_.batch, start, end, communication_);
    if (arguments_.mode != "alone") lockstep::barrier();
  }

 private:
  void shard() {
    using lockstep::optim::AdamW;
    using lockstep::optim::SGD;
    sharded_.emplace(model_);
    if (arguments_.optimizer == "adamw") {
      optimizer_.reset(new auto(sharded_->template optimizer<AdamW>(lockstep::optim::AdamWOptions(1e-3))));
    } else {
      const auto options = lockstep::optim::SGDOptions(1e-3).momentum(0.9);
      optimizer_.reset(new auto(sharded_->template optimizer<SGD>(options)));
    }
  }

  void step() {
    optimizer_->zero_grad();
    for (int pass = 1; pass < arguments_.accumulate; ++pass) {
      std::optional<lockstep::DistributedDataParallelBase::NoSync> no_sync;
      if (ddp_) no_sync.emplace(ddp_->no_sync());
      backward();
    }
    backward();
    optimizer_->step();
    if (arguments_.mode == "barrier") lockstep::barrier();
    if (ddp_) {
      const lockstep::StepTimes times = ddp_->stats().last_step;
      communication_.seconds += times.communication;
      communication_.exposed += times.exposed;
    }
  }

  void backward() {
    const std::size_t batch = batches_++ % BATCHES;
    const torch::Tensor& x = data_[batch];
    torch::Tensor loss;
    {
      const auto mixed = lockstep::autocast(at::kCPU, at::kBFloat16, arguments_.bf16);
      const torch::Tensor output = ddp_       ? ddp_->forward(x)
                                   : sharded_ ? sharded_->forward(x)
                                              : model_->forward(x);
      loss = torch::nn::functional::cross_entropy(output.view({-1, task_.classes}), target_[batch]);
    }
    loss.backward();
  }

  double sent_mib() const { return ddp_ ? static_cast<double>(ddp_->stats().bytes_sent) / (1 << 20) : 0; }

  Model model_;
  const Task task_;
  const Arguments arguments_;
  std::optional<lockstep::DistributedDataParallel<typename Model::ContainedType>> ddp_;
  std::optional<lockstep::ShardedDataParallel<typename Model::ContainedType>> sharded_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::vector<torch::Tensor> data_;
  std::vector<torch::Tensor> target_;
  std::size_t batches_ = 0;
  Communication communication_;
};

template <typename Model> void measure(Model model, Task task, const Arguments& arguments) {
  Training<Model>(std::move(model), std::move(task), arguments).measure();
}

// 10.8 million parameters.
lockstep::models::GPT2Config gpt2_config() {
  return {.vocab_size = VOCABULARY,
          .n_positions = TOKENS,
          .n_embd = 384,
          .n_layer = 6,
          .n_head = 6,
          .embd_pdrop = 0,
          .attn_pdrop = 0,
          .resid_pdrop = 0};
}

}  // namespace

int main(int argc, char** argv) {
  const auto arguments = parse(argc, argv);
  if (!arguments) {
    std::fprintf(
        stderr,
        "usage: train_step cnn|resnet18|mlp|gpt2 alone|barrier|ddp|sharded STEPS [sgd|adamw] [unused] [bf16] "
        "[accumulate=N] [hook=NAME]\n");
    return 64;
  }
  at::set_num_threads(1);
  torch::manual_seed(1);
  if (arguments->mode != "alone") lockstep::init_process_group();
  lockstep::install_caching_allocator();  // before the model, so that its parameters lie in huge pages, too
  if (arguments->model == "cnn") {
    measure(SimpleCNN(), {.sample = {1, 28, 28}}, *arguments);
  } else if (arguments->model == "resnet18") {
    measure(lockstep::models::resnet18({.num_classes = 10}), {.sample = {3, 32, 32}}, *arguments);
  } else if (arguments->model == "gpt2") {
    measure(lockstep::models::GPT2(gpt2_config()),
            {.batch = 8, .sample = {TOKENS}, .is_text = true, .classes = VOCABULARY}, *arguments);
  } else {
    measure(MLP(), {.sample = {2048}}, *arguments);
  }
  return 0;
}
