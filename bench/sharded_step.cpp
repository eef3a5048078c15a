// Milliseconds from the last gradient to the last parameter of a step: 25 million parameters, 25 weights of
// 1000x1000 with a bias of 1000 each, one thread a rank.
//
//   lockstep run -n 2 build/bench/sharded_step adamw 20      # or momentum, clip, bf16, masters
//
// Prints one JSON object per rank: medians over the steps, after two to warm up, of three ways in turn:
//   replicas  all_reduce of the gradients (in group memory, one buffer), then the optimiser on every rank
//   sharded   ShardedDataParallel: the optimiser's step
//   bound     the bytes of `sharded` and hardly any arithmetic: each rank reads all ranks' gradients of its
//             part, and its parameters and state, and writes these
//
// bf16 steps bfloat16 parameters and state as they are; masters has bfloat16 parameters and gradients with
// float32 masters and state, the usual mixed precision.
//
// Expected of memory alone, bytes a parameter and rank, N = 2, AdamW: replicas 36 N, sharded (4 N + 24) / N
// times N ranks that share one memory: 72 to 32, so 2.25 times as fast; see ZeRO's table in
// docs/zero.md.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/collectives/all_gather.h"
#include "lockstep/comm/collectives/common_memory.h"
#include "lockstep/job/job.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/clip_grad.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/zero/sharded_data_parallel.h"
#include "lockstep/tensor/caching_allocator.h"
#include "lockstep/tensor/collectives.h"

namespace dist = lockstep;

namespace {

constexpr int WEIGHTS = 25;
constexpr std::int64_t WIDTH = 1000;

struct Kind {
  std::string name;
  bool has_momentum() const { return name == "momentum"; }
  bool clips() const { return name == "clip"; }
  bool has_masters() const { return name == "masters"; }
  at::ScalarType dtype() const { return name == "bf16" || has_masters() ? at::kBFloat16 : at::kFloat; }
};

struct Net : torch::nn::Module {
  explicit Net(at::ScalarType dtype) {
    for (int i = 0; i < WEIGHTS; ++i) {
      register_parameter("w" + std::to_string(i), at::zeros({WIDTH, WIDTH}, dtype));
      register_parameter("b" + std::to_string(i), at::zeros({WIDTH}, dtype));
    }
  }
  at::Tensor forward() { return parameters()[0]; }
};

template <typename Body> double ms(const Body& body) {
  dist::barrier();
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Gradients as a backward leaves them: all ones, made anew.
void make_gradients(const std::vector<at::Tensor>& parameters) {
  at::Tensor loss = at::zeros({});
  for (const at::Tensor& parameter : parameters) loss = loss + parameter.sum().to(at::kFloat);
  loss.backward();
}

class Replicas {
 public:
  explicit Replicas(const Kind& kind) : kind_(kind), net_(kind.dtype()) {
    std::int64_t total = 0;
    for (const at::Tensor& parameter : net_.parameters()) total += parameter.numel();
    flat_ = dist::shared_empty({total}, kind.dtype()).fill_(1);
    std::int64_t begin = 0;
    for (at::Tensor& parameter : net_.parameters()) {
      parameter.mutable_grad() = flat_.narrow(0, begin, parameter.numel()).view(parameter.sizes()).detach();
      begin += parameter.numel();
      stepped_.push_back(kind.has_masters() ? parameter.detach().to(at::kFloat) : parameter);
    }
    if (kind.has_momentum()) {
      optimizer_ = std::make_unique<dist::optim::SGD>(stepped_, dist::optim::SGDOptions(1e-3).momentum(0.9));
    } else {
      optimizer_ = std::make_unique<dist::optim::AdamW>(stepped_, dist::optim::AdamWOptions(1e-3));
    }
  }
  double step() {
    return ms([&] {
      dist::all_reduce(flat_, dist::ReduceOp::AVG);
      if (kind_.clips()) dist::clip_grad_norm_(stepped_, 1.0);
      if (kind_.has_masters()) return step_masters();
      optimizer_->step();
    });
  }

 private:
  void step_masters() {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> parameters = net_.parameters();
    for (std::size_t i = 0; i < stepped_.size(); ++i)
      stepped_[i].mutable_grad() = parameters[i].grad().to(at::kFloat);
    optimizer_->step();
    for (std::size_t i = 0; i < stepped_.size(); ++i) parameters[i].copy_(stepped_[i]);
  }

  const Kind kind_;
  Net net_;
  std::vector<at::Tensor> stepped_;
  at::Tensor flat_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

template <typename Optimizer> class Sharded {
 public:
  template <typename Options>
  Sharded(const Kind& kind, const Options& options)
      : kind_(kind),
        net_(std::make_shared<Net>(kind.dtype())),
        model_(net_, {.master_weights = kind.has_masters()}),
        optimizer_(model_.template optimizer<Optimizer>(options)) {}
  double step() {
    make_gradients(net_->parameters());
    return ms([&] {
      if (kind_.clips()) model_.clip_grad_norm_(1.0);
      optimizer_.step();
    });
  }

 private:
  const Kind kind_;
  std::shared_ptr<Net> net_;
  dist::ShardedDataParallel<Net> model_;
  dist::ShardedOptimizer<Optimizer> optimizer_;
};

// Float streams of this rank's part of `count` elements.
class Bound {
 public:
  explicit Bound(const Kind& kind) : states_(kind.has_momentum() ? 1 : 2) {
    const auto ranks = static_cast<std::size_t>(dist::get_world_size());
    const std::size_t total = WEIGHTS * static_cast<std::size_t>(WIDTH * WIDTH + WIDTH);
    gradient_elements_ = kind.name == "bf16" ? total / 2 : total;
    if (kind.has_masters()) gradient_elements_ = total / 2;
    elements_ = gradient_elements_ / ranks;
    gradients_ = dist::world().allocate_shared(gradient_elements_ * sizeof(float));
    parameters_ = dist::comm::allocate_common(dist::world(), gradient_elements_ * sizeof(float));
    // Of masters: two of state and the master, of twice the bytes of a gradient.
    const int streams = kind.has_masters() ? 6 : states_;
    for (int s = 0; s < streams; ++s) state_.emplace_back(elements_);
    const std::uint64_t mine = dist::world().backend().place_of(gradients_.get()).value();
    std::vector<std::uint64_t> places(ranks);
    dist::comm::all_gather(dist::world(), std::span(&mine, 1), std::span(places)).wait();
    for (std::size_t r = 0; r < ranks; ++r)
      all_.push_back(dist::world().backend().memory_of(static_cast<int>(r), places[r],
                                                       gradient_elements_ * sizeof(float)));
  }
  double step() {
    return ms([&] {
      pass();
      dist::barrier();
    });
  }

 private:
  void pass() {
    constexpr std::size_t PIECE = 4096;
    const std::size_t first = elements_ * static_cast<std::size_t>(dist::get_rank());
    auto* const p = static_cast<float*>(parameters_.get()) + first;
    for (std::size_t begin = 0; begin < elements_; begin += PIECE) {
      const std::size_t end = std::min(elements_, begin + PIECE);
      for (std::size_t r = 0; r < all_.size(); ++r) {
        const float* const g = reinterpret_cast<const float*>(all_[r].get()) + first;
        for (std::size_t i = begin; i < end; ++i) p[i] += g[i];
      }
      for (std::vector<float>& state : state_)
        for (std::size_t i = begin; i < end; ++i) state[i] += 1;
    }
  }

  const int states_;
  std::size_t elements_ = 0, gradient_elements_ = 0;
  std::shared_ptr<void> gradients_, parameters_;
  std::vector<std::shared_ptr<std::byte>> all_;
  std::vector<std::vector<float>> state_;
};

template <typename Way> void measure_all(const Kind& kind, int steps, Way& sharded) {
  Replicas replicas(kind);
  Bound bound(kind);
  std::vector<double> of_replicas, of_sharded, of_bound;
  for (int s = -2; s < steps; ++s) {
    const double a = replicas.step(), b = sharded.step(), c = bound.step();
    if (s < 0) continue;
    of_replicas.push_back(a);
    of_sharded.push_back(b);
    of_bound.push_back(c);
  }
  std::printf("{\"kind\": \"%s\", \"replicas\": %.3f, \"sharded\": %.3f, \"bound\": %.3f}\n",
              kind.name.c_str(), median(of_replicas), median(of_sharded), median(of_bound));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 64;
  const Kind kind{argv[1]};
  const int steps = std::atoi(argv[2]);
  at::set_num_threads(1);
  dist::init_process_group();
  dist::install_caching_allocator();
  if (kind.has_momentum()) {
    Sharded<dist::optim::SGD> sharded(kind, dist::optim::SGDOptions(1e-3).momentum(0.9));
    measure_all(kind, steps, sharded);
  } else {
    Sharded<dist::optim::AdamW> sharded(kind, dist::optim::AdamWOptions(1e-3));
    measure_all(kind, steps, sharded);
  }
  dist::destroy_process_group();
  return 0;
}
