// Trains GPT-2 on a mesh of tensor, pipeline, context and data parallelism, which one file describes. Copies
// share out the optimiser (ZeRO). With --beside-plain rank 0 trains the model alone, too.
//
//   scripts/download tinyshakespeare
//   build/lockstep run -n 8 build/examples/gpt2_3d --config examples/gpt2_3d.json --beside-plain
//   [0] tensor 2, pipeline 2, context 1, data 2: 0.06 M of 0.22 M parameters on this rank
//   [0] step 10: loss 3.5084, in one process 3.5084
//
// Any other mesh loads the checkpoints: change "mesh" in the file, or the number of ranks, and --resume.
#include <ATen/Parallel.h>
#include <ATen/ops/randperm.h>
#include <torch/utils.h>

#include <cstdio>
#include <optional>
#include <span>

#include "examples/gpt2_3d_config.h"
#include "examples/text.h"
#include "lockstep/comm/collectives/all_reduce.h"
#include "lockstep/job/job.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/optim/clip_grad.h"
#include "lockstep/parallel/model_parallel/gradient_norm.h"
#include "lockstep/parallel/tensor_parallel/model_state.h"
#include "lockstep/parallel/tensor_parallel/random.h"
#include "lockstep/parallel/zero/sharded_data_parallel.h"
#include "lockstep/train/parameters_sha256.h"

namespace dist = lockstep;
namespace models = lockstep::models;
namespace tp = lockstep::tensor_parallel;

namespace {

models::PipelineGPT2 make_net(const Gpt2In3d& c, const dist::ModelParallel& mesh) {
  tp::model_parallel_manual_seed(c.seed, dist::world());
  models::PipelineGPT2 net(
      c.model, mesh,
      models::PipelineGPT2Options{.schedule = c.pipeline.schedule, .sequence_parallel = c.sequence_parallel});
  if (c.bf16) net->to(at::kBFloat16);
  return net;
}

// The same sequences of all copies, whatever the mesh.
dist::Batch batch_of(const Text& text, const Gpt2In3d& c, std::int64_t step) {
  const std::int64_t steps_of_epoch = std::max<std::int64_t>(1, text.size() / c.batch_size);
  torch::manual_seed(c.seed + static_cast<std::uint64_t>(step / steps_of_epoch));
  const at::Tensor order = at::randperm(text.size(), at::kLong);
  const at::Tensor rows = order.narrow(0, step % steps_of_epoch * c.batch_size, c.batch_size);
  return text.get_batch(
      std::span(rows.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(rows.numel())));
}

// The model on the mesh, and what trains it.
struct Trained {
  explicit Trained(const Gpt2In3d& c)
      : mesh(dist::init_model_parallel(c.mesh)),
        net(make_net(c, mesh)),
        model(net, {.process_group = mesh.get_data_parallel_group(true), .master_weights = c.bf16}),
        optimizer(model.optimizer<dist::optim::AdamW>(c.adamw)),
        pipeline(models::stages_of(model, net->chunks()), net->loss_function(), c.pipeline,
                 mesh.get_pipeline_model_parallel_group()),
        norm(*net, mesh) {
    pipeline.tie("wte", net->tied_weight());
  }

  double step(const dist::Batch& batch, double clipping) {
    const std::int64_t rows = batch.data.size(0) / mesh.get_data_parallel_world_size();
    const std::int64_t first = rows * mesh.get_data_parallel_rank();
    double loss = pipeline.step(batch.data.narrow(0, first, rows), batch.target.narrow(0, first, rows)).loss;
    norm.clip_grad_norm_(model, clipping);
    optimizer.step();
    dist::comm::all_reduce(mesh.get_data_parallel_group(true), std::span(&loss, 1), dist::ReduceOp::AVG)
        .wait();
    return loss;
  }

  dist::ModelParallel mesh;
  models::PipelineGPT2 net;
  dist::ShardedDataParallel<models::PipelineGPT2Impl> model;
  dist::ShardedOptimizer<dist::optim::AdamW> optimizer;
  dist::Pipeline pipeline;
  dist::GradientNorm norm;
};

// The same in one process.
struct Plain {
  explicit Plain(const Gpt2In3d& c) : net(made(c)), optimizer(net->named_parameters().pairs(), c.adamw) {}
  static models::GPT2 made(const Gpt2In3d& c) {
    torch::manual_seed(c.seed);
    return models::GPT2(c.model);
  }
  double step(const dist::Batch& batch, double clipping) {
    optimizer.zero_grad();
    const at::Tensor loss = models::next_token_loss(net->forward(batch.data), batch.target);
    loss.backward();
    dist::clip_grad_norm_(net->parameters(), clipping);
    optimizer.step();
    return loss.item<double>();
  }
  models::GPT2 net;
  dist::optim::AdamW optimizer;
};

void run(const Gpt2In3dOptions& o) {
  at::set_num_threads(1);
  dist::init_process_group();
  const Gpt2In3d config = o.read();
  const Text text(o.data, config.model.n_positions);
  const bool speaks = dist::get_rank() == 0;
  std::optional<Plain> plain;
  if (speaks && o.alone_beside) plain.emplace(config);
  Trained trained(config);
  std::int64_t own = 0;
  for (const at::Tensor& parameter : trained.net->parameters()) own += parameter.numel();
  if (speaks)
    std::printf("tensor %d, pipeline %d, context %d, data %d: %.2f M of %.2f M parameters on this rank\n",
                config.mesh.tensor, config.mesh.pipeline, config.mesh.context,
                trained.mesh.get_data_parallel_world_size(), static_cast<double>(own) / 1e6,
                static_cast<double>(config.model.parameter_count()) / 1e6);

  tp::ModelState model_state(trained.model, *trained.net);
  tp::OptimizerState optimizer_state(trained.optimizer, *trained.net);
  Checkpoints checkpoints(o.checkpoints);
  checkpoints.state.add("model", model_state).add("optimizer", optimizer_state);
  checkpoints.resume();
  while (checkpoints.step() < config.steps) {
    const dist::Batch batch = batch_of(text, config, checkpoints.step());
    torch::manual_seed(config.dropout_seed(checkpoints.step(), dist::get_rank(), dist::get_world_size()));
    const double loss = trained.step(batch, config.clipping);
    const double beside = plain ? plain->step(batch, config.clipping) : 0;
    const long long done = checkpoints.step() + 1;
    if (speaks && (done % 10 == 0 || done == config.steps)) {
      std::printf(plain ? "step %lld: loss %.4f, in one process %.4f\n" : "step %lld: loss %.4f\n", done,
                  loss, beside);
    }
    checkpoints.after_step();
  }
  std::printf("sha256 of rank %d: %s\n", dist::get_rank(),
              dist::parameters_sha256(trained.net->named_parameters().pairs()).c_str());
  dist::destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) {
  const Gpt2In3dOptions options = parse_3d_options(argc, argv);
  return exit_code_of([&] { run(options); });
}
