// Forward and backward of a transformer's parts: one process with libtorch's layers, and all ranks with
// Lockstep's tensor-parallel ones. Width 1024, 4 sequences of 256 tokens, float32, one thread a process.
//
//   lockstep run -n 2 build/bench/tensor_parallel mlp 15
//   lockstep run -n 2 build/bench/tensor_parallel attention 15
//   lockstep run -n 2 build/bench/tensor_parallel block 15 [sequence]
//   lockstep run -n 2 .deps/venv/bin/python bench/peers/tensor_parallel.py block 15     # torch by hand, Gloo
//
// A round is STEPS steps of rank 0 alone, while the others wait, as many of all ranks together, and as many
// of all ranks apart: each computes a part as large as a rank's, and exchanges nothing. Prints one JSON
// object: the medians over rounds of the milliseconds a step, and of ratios within a round. "ratio" is
// together to alone, "bound" apart to alone, and "of_bound" together to apart. The bound is what two
// processes of this machine take from each other, .50 where they take nothing. "all_reduce_ms" is one
// exchange by itself; "sequence": sequence parallelism.
//
// Expected before the first measurement: the ratio is .50 for the halves of the products, and 4 MB for each
// all_reduce, about 1 ms: two of 150 ms for the MLP (.51), two of 90 for the attention (.52). What is above
// is work that is not halved: norms, dropout and sums of the block, packing of smaller matrices.
#include <ATen/Parallel.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/job/job.h"
#include "lockstep/parallel/tensor_parallel/exchange_memory.h"
#include "lockstep/parallel/tensor_parallel/parallel_transformer_layer.h"
#include "lockstep/tensor/caching_allocator.h"
#include "lockstep/tensor/collectives.h"

namespace {

namespace dist = lockstep;
namespace tp = dist::tensor_parallel;
namespace nn = torch::nn;

constexpr std::int64_t BATCH = 4, SEQUENCE = 256, WIDTH = 1024, HEADS = 16;
constexpr int STEPS = 4;

using Layer = std::function<at::Tensor(const at::Tensor&)>;

double milliseconds_now() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The parts as a program without tensor parallelism has them: the whole, or one of `shares` equal shares of
// the heads and of the hidden units.
struct PlainImpl : nn::Module {
  explicit PlainImpl(int shares) : heads(HEADS / shares) {
    const std::int64_t width = WIDTH / shares;
    ln_1 = register_module("ln_1", nn::LayerNorm(nn::LayerNormOptions({WIDTH})));
    qkv = register_module("qkv", nn::Linear(WIDTH, 3 * width));
    proj = register_module("proj", nn::Linear(width, WIDTH));
    ln_2 = register_module("ln_2", nn::LayerNorm(nn::LayerNormOptions({WIDTH})));
    fc1 = register_module("fc1", nn::Linear(WIDTH, 4 * width));
    fc2 = register_module("fc2", nn::Linear(4 * width, WIDTH));
  }
  at::Tensor attention(const at::Tensor& x) {
    const auto parts =
        qkv(x).view({BATCH, SEQUENCE, 3, heads, WIDTH / HEADS}).permute({2, 0, 3, 1, 4}).unbind();
    const at::Tensor y = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0, true);
    return proj(y.transpose(1, 2).reshape({BATCH, SEQUENCE, heads * WIDTH / HEADS}));
  }
  at::Tensor mlp(const at::Tensor& x) { return fc2(at::gelu(fc1(x), "tanh")); }
  at::Tensor block(const at::Tensor& x) {
    const at::Tensor y = x + attention(ln_1(x));
    return y + mlp(ln_2(y));
  }

  std::int64_t heads;
  nn::LayerNorm ln_1{nullptr}, ln_2{nullptr};
  nn::Linear qkv{nullptr}, proj{nullptr}, fc1{nullptr}, fc2{nullptr};
};
TORCH_MODULE(Plain);

Layer plain_part(Plain net, const std::string& what) {
  if (what == "mlp") return [net](const at::Tensor& x) mutable { return net->mlp(x); };
  if (what == "attention") return [net](const at::Tensor& x) mutable { return net->attention(x); };
  return [net](const at::Tensor& x) mutable { return net->block(x); };
}

Layer parallel_part(tp::ParallelTransformerLayer net, const std::string& what) {
  if (what == "mlp") return [net](const at::Tensor& x) mutable { return net->mlp(x); };
  if (what == "attention") return [net](const at::Tensor& x) mutable { return net->self_attention(x); };
  return [net](const at::Tensor& x) mutable { return net(x); };
}

// Milliseconds of a step.
double time_steps(const Layer& layer, const nn::Module& net, const at::Tensor& data,
                  const at::Tensor& slope) {
  const double start = milliseconds_now();
  for (int step = 0; step < STEPS; ++step) {
    for (at::Tensor parameter : net.parameters()) parameter.mutable_grad().reset();
    const at::Tensor x = data.detach().set_requires_grad(true);
    layer(x).backward(slope);
  }
  return (milliseconds_now() - start) / STEPS;
}

double time_exchange(const at::Tensor& data) {
  at::Tensor partial = tp::exchange_copy(data, dist::world());
  const double start = milliseconds_now();
  for (int step = 0; step < STEPS; ++step) dist::all_reduce(partial, dist::ReduceOp::AVG);
  return (milliseconds_now() - start) / STEPS;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void measure(const std::string& what, int rounds, bool sequence_parallel) {
  torch::manual_seed(1);
  Plain plain(1), share(dist::get_world_size());
  const tp::TransformerConfig config{
      .hidden_size = WIDTH, .num_attention_heads = HEADS, .sequence_parallel = sequence_parallel};
  tp::ParallelTransformerLayer parallel(config, dist::world());
  const at::Tensor data = at::randn({BATCH, SEQUENCE, WIDTH}), slope = at::randn(data.sizes());
  const std::int64_t rows = sequence_parallel ? BATCH / dist::get_world_size() : BATCH;
  const at::Tensor own = data.narrow(0, 0, rows), own_slope = slope.narrow(0, 0, rows);
  const Layer alone = plain_part(plain, what), together = parallel_part(parallel, what),
              apart = plain_part(share, what);
  std::vector<double> of_one, of_all, of_apart, ratios, bounds, to_bounds, exchanges;
  for (int round = -2; round < rounds; ++round) {
    double one = 0;
    if (dist::get_rank() == 0) one = time_steps(alone, *plain, data, slope);
    dist::barrier();
    const double all = time_steps(together, *parallel, own, own_slope);
    dist::barrier();
    const double bound = time_steps(apart, *share, data, slope);
    dist::barrier();
    const double exchange = time_exchange(data);
    dist::barrier();
    if (round < 0) continue;
    of_one.push_back(one);
    of_all.push_back(all);
    of_apart.push_back(bound);
    ratios.push_back(all / one);
    bounds.push_back(bound / one);
    to_bounds.push_back(all / bound);
    exchanges.push_back(exchange);
  }
  if (dist::get_rank() == 0)
    std::printf(
        "{\"part\": \"%s\", \"ranks\": %d, \"sequence_parallel\": %s, \"one_process_ms\": %.1f, "
        "\"tensor_parallel_ms\": %.1f, \"apart_ms\": %.1f, \"ratio\": %.3f, \"bound\": %.3f, \"of_bound\": "
        "%.3f, \"all_reduce_ms\": %.2f}\n",
        what.c_str(), dist::get_world_size(), sequence_parallel ? "true" : "false", median(of_one),
        median(of_all), median(of_apart), median(ratios), median(bounds), median(to_bounds),
        median(exchanges));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 0;
  const bool sequence_parallel = argc > 3 && std::string(argv[3]) == "sequence";
  if ((what != "mlp" && what != "attention" && what != "block") || rounds < 1 ||
      argc > (sequence_parallel ? 4 : 3)) {
    std::fprintf(stderr, "usage: tensor_parallel mlp|attention|block ROUNDS [sequence]\n");
    return 64;
  }
  at::set_num_threads(1);
  dist::init_process_group();
  dist::install_caching_allocator();
  measure(what, rounds, sequence_parallel);
  dist::destroy_process_group();
  return 0;
}
