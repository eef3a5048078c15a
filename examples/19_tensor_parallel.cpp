// One GPT-2 on several ranks, each of which holds a part of every layer (tensor parallelism). The losses are
// those of one process, but for rounding.
//
//   build/lockstep run -n 2 build/examples/tensor_parallel
//   [0] 2 ranks share 0.41 M parameters: 0.21 M a rank
//   [0] step 10: loss 2.0250, norm of the gradients 1.386
//   [0] step 40: loss 0.6151, norm of the gradients 1.030
#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randint.h>
#include <torch/utils.h>

#include <cstdio>
#include <stdexcept>

#include "examples/checkpoints.h"
#include "lockstep/job/job.h"
#include "lockstep/job/model_parallel.h"
#include "lockstep/models/tensor_parallel_gpt2.h"
#include "lockstep/optim/adam.h"
#include "lockstep/parallel/tensor_parallel/model_state.h"
#include "lockstep/parallel/tensor_parallel/random.h"

namespace dist = lockstep;
namespace tp = dist::tensor_parallel;

constexpr int STEPS = 40;
constexpr std::int64_t VOCABULARY = 61, LENGTH = 32, BATCH = 16;

// Texts that count: each has a first token and a stride of its own.
struct Batch {
  explicit Batch(int step) {  // the same on all ranks
    torch::manual_seed(static_cast<std::uint64_t>(step));
    const at::Tensor first = at::randint(VOCABULARY, {BATCH, 1}), stride = at::randint(1, 4, {BATCH, 1});
    const at::Tensor text = (first + stride * at::arange(LENGTH + 1)).remainder(VOCABULARY).to(at::kLong);
    tokens = text.narrow(1, 0, LENGTH);
    targets = text.narrow(1, 1, LENGTH);
  }
  at::Tensor tokens, targets;
};

dist::models::GPT2Config config() {
  return {.vocab_size = VOCABULARY,
          .n_positions = LENGTH,
          .n_embd = 128,
          .n_layer = 2,
          .n_head = 4,
          .embd_pdrop = 0,
          .attn_pdrop = 0,
          .resid_pdrop = 0};
}

void run(const CheckpointOptions& options) {
  at::set_num_threads(1);
  dist::init_process_group();
  const dist::ModelParallel parallel = dist::init_model_parallel({.tensor = dist::get_world_size()});
  const dist::ProcessGroup& group = parallel.get_tensor_model_parallel_group();

  tp::model_parallel_manual_seed(1, group);
  dist::models::TensorParallelGPT2 net(config(), group);
  dist::optim::AdamW optimizer(net->named_parameters().pairs(), dist::optim::AdamWOptions(3e-3));
  std::int64_t parameters = 0;
  for (const at::Tensor& parameter : net->parameters()) parameters += parameter.numel();
  if (dist::get_rank() == 0)
    std::printf("%d ranks share %.2f M parameters: %.2f M a rank\n", group.size(),
                static_cast<double>(config().parameter_count()) / 1e6, static_cast<double>(parameters) / 1e6);

  int step = 0;
  double first = 0, last = 0;
  tp::ModelState model_state(*net);
  tp::OptimizerState optimizer_state(optimizer, *net);
  Checkpoints checkpoints(options);
  checkpoints.state.add("model", model_state).add("optimizer", optimizer_state);
  checkpoints.state.add_value("number", step).add_value("first", first);
  checkpoints.resume();
  while (step < STEPS) {
    const Batch batch(step);
    optimizer.zero_grad();
    const at::Tensor loss = net->loss(batch.tokens, batch.targets);
    loss.backward();
    const double norm = tp::clip_grad_norm_(*net, 1.0, group);
    optimizer.step();
    ++step;
    last = loss.item<double>();
    if (step == 1) first = last;
    if (dist::get_rank() == 0 && step % 10 == 0)
      std::printf("step %d: loss %.4f, norm of the gradients %.3f\n", step, last, norm);
    checkpoints.after_step();
  }
  if (!(last < 0.5 * first)) throw std::runtime_error("the loss did not fall");
  dist::destroy_process_group();
}

int main(int argc, char** argv) { return run_training(argc, argv, run); }
