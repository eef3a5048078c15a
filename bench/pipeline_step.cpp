// Milliseconds of a pipeline's step (forward and backward of a batch, no optimiser) on two ranks of one
// thread, for each schedule, beside two halves that exchange nothing.
//
//   lockstep run -n 2 build/bench/pipeline_step mlp 4 30       # or gpt; 4 or 8 micro-batches; 30 rounds
//   lockstep run -n 2 build/bench/pipeline_step mlp 4 30 zb-v  # the schedules whose name begins so
//   lockstep run -n 2 python bench/peers/pipeline_step.py mlp 4 30    # torch.distributed.pipelining
//   lockstep run -n 2 build/bench/pipeline_step messages 1536 300     # a value of 1.5 MiB; 300 rounds
//
// mlp    sixteen layers of 1024 x 1024 with ReLU, 256 rows a batch
// gpt    eight blocks of GPT-2, width 384 with 6 heads, 16 sequences of 128 places a batch; a part of the cut
//        may end within a block, between its attention and its MLP
// sleep  stages that sleep: 200 ms for the forward of a micro-batch, as long for the gradient of its inputs,
//        and for that of its parameters. Any number of ranks; prints the measured bubble beside the table's.
//
// messages  microseconds in which a value goes from one stage to the next, which reads it once: half of a
//           round in which it comes back as a gradient. Median of the rounds.
//
// halves is the least that two ranks can do: each runs its half of the layers forward and backward for each
// micro-batch, on inputs and gradients of its own, and then they meet. `times_halves` of a schedule with no
// bubble is 1. `times_bubble` is the same, times the part of the schedule's table in which a rank computes if
// all actions take equally long: 1 if the bubble is what its formula says, (p - 1) / (m + p - 1) for 1F1B.
// `ideal` is the makespan of the schedule's table where each action takes as long as in halves that exchange
// nothing either and run the actions of that table in its order: what lies between a forward and its
// backward, or between the halves of a backward, empties the caches. "zb-v cut" has the cut, and the order,
// that are best for the times of the layers, which balance_by_time() measures first; so has its bubble.
//
// Rounds run all schedules in turn, each right behind its halves, because the machine's speed changes from
// second to second. Medians of the rounds, of ratios as well. Prints one JSON object per rank and schedule.
#include <ATen/Parallel.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/job/job.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/parallel/pipeline/balance.h"
#include "lockstep/parallel/pipeline/part_messages.h"
#include "lockstep/parallel/pipeline/pipeline.h"
#include "lockstep/parallel/pipeline/split_backward.h"
#include "lockstep/schedules/pipeline_timeline.h"
#include "lockstep/tensor/caching_allocator.h"
#include "lockstep/tensor/collectives.h"

namespace dist = lockstep;
namespace nn = torch::nn;

namespace {

using enum dist::PipelineScheduleKind;

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// A half of a block of GPT-2.
struct HalfBlockImpl : nn::Module {
  HalfBlockImpl(const dist::models::GPT2Block& whole, bool is_mlp) : is_mlp_(is_mlp) {
    norm_ = register_module("norm", is_mlp ? whole->ln_2 : whole->ln_1);
    if (is_mlp) mlp_ = register_module("mlp", whole->mlp);
    if (!is_mlp) attention_ = register_module("attention", whole->attn);
  }
  at::Tensor forward(const at::Tensor& x) {
    return x + (is_mlp_ ? mlp_->forward(norm_->forward(x)) : attention_->forward(norm_->forward(x)));
  }

 private:
  bool is_mlp_;
  nn::LayerNorm norm_{nullptr};
  dist::models::GPT2Attention attention_{nullptr};
  dist::models::GPT2MLP mlp_{nullptr};
};
TORCH_MODULE(HalfBlock);

// The layers of a model, in order; a part of the pipeline is several of them.
struct Model {
  std::string name;
  nn::Sequential layers;
  at::Tensor batch;

  explicit Model(const std::string& which) : name(which) {
    torch::manual_seed(1);
    if (which == "mlp") {
      for (int i = 0; i < 16; ++i) {
        layers->push_back(nn::Linear(1024, 1024));
        layers->push_back(nn::ReLU());
      }
      batch = at::randn({256, 1024});
    } else if (which == "gpt") {
      const dist::models::GPT2Config config{
          .n_positions = 128, .n_embd = 384, .n_head = 6, .embd_pdrop = 0, .attn_pdrop = 0, .resid_pdrop = 0};
      for (int i = 0; i < 8; ++i) {
        const dist::models::GPT2Block block(config);
        layers->push_back(HalfBlock(block, false));
        layers->push_back(HalfBlock(block, true));
      }
      batch = at::randn({16, 128, 384});
    }
  }
  std::vector<std::int64_t> even(int parts) const {
    return std::vector<std::int64_t>(static_cast<std::size_t>(parts),
                                     static_cast<std::int64_t>(layers->size()) / parts);
  }
};

at::Tensor loss_of(const at::Tensor& output, const at::Tensor& target) {
  return nn::functional::mse_loss(output, target);
}

// What one rank computes, from its first forward until all ranks have met.
struct Halves {
  double ms = 0;
  std::vector<double> actions;  // ms of each
};

// The actions of a rank's row, on inputs and gradients of its own. The model's first part needs no gradient
// of its inputs.
Halves run_halves(std::vector<nn::Sequential>& nets, const at::Tensor& batch, int micro_batches,
                  const std::vector<dist::PipelineAction>& actions) {
  using enum dist::PipelineActionKind;
  const std::vector<at::Tensor> pieces = batch.chunk(micro_batches);
  std::map<std::pair<int, int>, at::Tensor> inputs, outputs;
  std::map<std::pair<int, int>, dist::SplitBackward> halfway;
  dist::barrier();
  Halves halves;
  const double start = now_ms();
  for (const dist::PipelineAction& action : actions) {
    const std::pair key = {action.chunk, action.micro_batch};
    const double begin = now_ms();
    if (action.kind == FORWARD) {
      const bool is_first = dist::get_rank() == 0 && action.chunk == 0;
      inputs[key] = pieces[static_cast<std::size_t>(action.micro_batch)].detach().requires_grad_(!is_first);
      outputs[key] = nets[static_cast<std::size_t>(action.chunk)]->forward(inputs[key]);
    } else if (action.kind == BACKWARD_WEIGHT) {
      halfway.extract(key).mapped().accumulate();
    } else {
      const at::Tensor input = inputs.extract(key).mapped(), output = outputs.extract(key).mapped();
      if (action.kind == BACKWARD) output.backward(at::ones_like(output));
      if (action.kind == BACKWARD_INPUT)
        halfway.emplace(key, dist::SplitBackward({output}, {at::ones_like(output)}, {input}));
    }
    halves.actions.push_back(now_ms() - begin);
  }
  dist::barrier();
  halves.ms = now_ms() - start;
  return halves;
}

// A forward and its backward, one micro-batch after the other.
std::vector<dist::PipelineAction> one_by_one(int micro_batches) {
  std::vector<dist::PipelineAction> actions;
  for (int i = 0; i < micro_batches; ++i)
    for (const auto kind : {dist::PipelineActionKind::FORWARD, dist::PipelineActionKind::BACKWARD})
      actions.push_back({.kind = kind, .micro_batch = i});
  return actions;
}

std::string label_of(const dist::PipelineShape& shape) {
  return std::string(name_of(shape.kind)) +
         (shape.virtual_stages > 1 && shape.kind == ONE_F_ONE_B ? " x2" : "") +
         (shape.work.part_sizes.empty() ? "" : " cut");
}

struct Contender {
  dist::PipelineShape shape;
  std::vector<std::int64_t> layers;
  std::unique_ptr<dist::Pipeline> pipeline;
  std::vector<nn::Sequential> nets;
  std::vector<double> ms, ratios, ideals, waited;

  std::vector<dist::PipelineAction> actions() const {
    return pipeline_schedule(shape).ranks[static_cast<std::size_t>(dist::get_rank())];
  }
};

// A schedule, and the layers of each part.
struct Plan {
  dist::PipelineShape shape;
  std::vector<std::int64_t> layers;
};

// All schedules; ZB_V a second time, cut and ordered for the times measured.
std::vector<Plan> make_plans(const Model& model, int micro_batches) {
  std::vector<Plan> plans;
  for (const auto& [kind, chunks] : std::vector<std::pair<dist::PipelineScheduleKind, int>>{
           {GPIPE, 1}, {ONE_F_ONE_B, 1}, {ONE_F_ONE_B, 2}, {ZB_H1, 1}, {ZB_V, 2}}) {
    const dist::PipelineShape shape{.kind = kind,
                                    .stages = dist::get_world_size(),
                                    .micro_batches = micro_batches,
                                    .virtual_stages = chunks};
    plans.push_back({shape, model.even(shape.parts())});
  }
  if (model.layers->is_empty()) return plans;
  const dist::PipelineBalance balance =
      balance_by_time(plans.back().shape, model.layers, model.batch.chunk(micro_batches)[0]);
  plans.push_back({plans.back().shape, balance.layers});
  plans.back().shape.work = balance.work;
  return plans;
}

std::vector<Contender> make_contenders(const Model& model, int micro_batches, const std::string& names) {
  std::vector<Contender> all;
  for (const auto& [shape, layers] : make_plans(model, micro_batches)) {
    if (!label_of(shape).starts_with(names)) continue;
    Contender one{.shape = shape, .layers = layers};
    std::vector<dist::PipelineStage> stages;
    for (int chunk = 0; chunk < shape.virtual_stages; ++chunk) {
      one.nets.push_back(dist::sequential_part(model.layers, layers, shape.part_of(dist::get_rank(), chunk)));
      stages.emplace_back(one.nets.back());
    }
    one.pipeline = std::make_unique<dist::Pipeline>(
        stages, loss_of,
        dist::PipelineOptions{.schedule = shape.kind, .micro_batches = micro_batches, .work = shape.work});
    all.push_back(std::move(one));
  }
  return all;
}

// The makespan of the schedule if each action takes as long as in its rank's halves. Every rank calls it.
double ideal_ms(const dist::PipelineShape& shape, const Halves& own) {
  const dist::PipelineSchedule schedule = pipeline_schedule(shape);
  std::vector<std::vector<double>> measured;
  for (int rank = 0; rank < dist::get_world_size(); ++rank) {
    const bool is_mine = rank == dist::get_rank();
    const auto count = static_cast<std::int64_t>(schedule.ranks[static_cast<std::size_t>(rank)].size());
    at::Tensor ms = is_mine ? at::tensor(own.actions, at::kDouble) : at::zeros({count}, at::kDouble);
    dist::broadcast(ms, rank);
    measured.emplace_back(ms.data_ptr<double>(), ms.data_ptr<double>() + count);
  }
  return dist::pipeline_timeline(schedule, measured).makespan();
}

void print_one(const Model& model, const Contender& one) {
  const double bubble = pipeline_timeline(pipeline_schedule(one.shape)).bubble();
  std::printf(
      "{\"model\": \"%s\", \"micro_batches\": %d, \"schedule\": \"%s\", \"ms\": %.2f, "
      "\"times_halves\": %.3f, \"times_bubble\": %.3f, \"times_ideal\": %.3f, \"waited_ms\": %.2f}\n",
      model.name.c_str(), one.shape.micro_batches, label_of(one.shape).c_str(), median(one.ms),
      median(one.ratios), median(one.ratios) * (1 - bubble), median(one.ideals), median(one.waited));
}

void measure(const Model& model, int micro_batches, int rounds, const std::string& names) {
  std::vector<Contender> contenders = make_contenders(model, micro_batches, names);
  if (contenders.empty()) throw dist::InvalidArgument("no schedule's name begins with " + names);
  std::vector<nn::Sequential> half = {
      dist::sequential_part(model.layers, model.even(dist::get_world_size()), dist::get_rank())};
  std::vector<double> halves;
  for (int round = -3; round < rounds; ++round) {
    for (Contender& one : contenders) {
      const double plain = run_halves(half, model.batch, micro_batches, one_by_one(micro_batches)).ms;
      const double ideal =
          ideal_ms(one.shape, run_halves(one.nets, model.batch, micro_batches, one.actions()));
      dist::barrier();
      const double start = now_ms();
      one.pipeline->step(model.batch, model.batch);
      const double ms = now_ms() - start;
      if (round < 0) continue;
      halves.push_back(plain);
      one.ms.push_back(ms);
      one.ratios.push_back(ms / plain);
      one.ideals.push_back(ms / ideal);
      one.waited.push_back(1e3 * one.pipeline->stats().seconds_waited);
    }
  }
  std::printf("{\"model\": \"%s\", \"micro_batches\": %d, \"schedule\": \"halves\", \"ms\": %.2f}\n",
              model.name.c_str(), micro_batches, median(halves));
  for (const Contender& one : contenders) print_one(model, one);
  if (dist::get_rank() > 0) return;
  for (const std::int64_t layers : contenders.back().layers)
    std::printf("cut: %lld of %zu layers\n", static_cast<long long>(layers), model.layers->size());
}

constexpr std::chrono::milliseconds SLEEP{200};

// x + w, whose parts take a known time.
struct SleepyAdd : torch::autograd::Function<SleepyAdd> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& w, std::int64_t chunks) {
    context->saved_data["chunks"] = chunks;
    std::this_thread::sleep_for(SLEEP / chunks);
    return x + w;
  }
  static std::vector<at::Tensor> backward(torch::autograd::AutogradContext* context,
                                          const std::vector<at::Tensor>& gradients) {
    const std::int64_t chunks = context->saved_data["chunks"].toInt();
    at::Tensor dx, dw;
    if (context->needs_input_grad(0)) {
      std::this_thread::sleep_for(SLEEP / chunks);
      dx = gradients[0];
    }
    if (context->needs_input_grad(1)) {
      std::this_thread::sleep_for(SLEEP / chunks);
      dw = gradients[0].sum();
    }
    return {dx, dw, at::Tensor()};
  }
};

void measure_sleep(int micro_batches, int rounds) {
  for (const Plan& plan : make_plans(Model("none"), micro_batches)) {
    const dist::PipelineShape& shape = plan.shape;
    const int chunks = shape.virtual_stages;
    std::vector<double> steps;
    const at::Tensor w = at::ones({}).requires_grad_();
    // The inputs of the first part need no gradient; this one takes as long as the others all the same.
    const dist::PipelineStage stage = [w, chunks](const at::Tensor& x) {
      return SleepyAdd::apply(x.requires_grad() ? x : x.detach().requires_grad_(), w, chunks);
    };
    dist::Pipeline pipeline(std::vector<dist::PipelineStage>(static_cast<std::size_t>(chunks), stage),
                            loss_of, {.schedule = shape.kind, .micro_batches = micro_batches});
    const at::Tensor batch = at::ones({micro_batches, 4});
    for (int round = 0; round < rounds; ++round) {
      dist::barrier();
      const double start = now_ms();
      pipeline.step(batch, batch);
      steps.push_back(now_ms() - start);
    }
    const auto timeline = dist::pipeline_timeline(pipeline_schedule(shape));
    const double work = 3.0 * micro_batches * static_cast<double>(SLEEP.count());
    std::printf(
        "{\"model\": \"sleep\", \"ranks\": %d, \"micro_batches\": %d, \"schedule\": \"%s\", "
        "\"bubble\": %.4f, \"table\": %.4f}\n",
        dist::get_world_size(), micro_batches, label_of(shape).c_str(), 1 - work / median(steps),
        timeline.bubble());
  }
}

void measure_messages(std::int64_t kib, int rounds) {
  const dist::PipelineShape shape{.stages = 2};
  dist::PartMessages messages(dist::world(), shape);
  messages.begin({.rows = {1}});
  const at::Tensor value = at::randn({kib * 256});
  const dist::NamedTensors activation = {{"", value.detach().requires_grad_()}};
  const dist::PipelineMessage there{dist::PipelineMessageKind::ACTIVATION, 0, 0, 1},
      back{dist::PipelineMessageKind::GRADIENT, 0, 1, 0};
  std::vector<double> us;
  double sum = 0;
  for (int round = -10; round < rounds; ++round) {
    const double start = now_ms();
    if (dist::get_rank() == 0) {
      messages.send(there, dist::NamedTensors{{"", value}}, dist::specs_of(activation));
      messages.receive(back);
      sum += messages.take(back)->front().second.sum().item<double>();
    } else {
      messages.receive(there);
      sum += messages.take(there)->front().second.detach().sum().item<double>();
      messages.send(back, std::vector<at::Tensor>{value});
    }
    if (round >= 0) us.push_back(1e3 * (now_ms() - start) / 2);
  }
  messages.finish();
  dist::barrier();
  std::printf("{\"model\": \"messages\", \"kib\": %lld, \"us\": %.1f, \"sum\": %.3g}\n",
              static_cast<long long>(kib), median(us), sum);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4 || argc > 5) return 64;
  at::set_num_threads(1);
  dist::init_process_group();
  dist::install_caching_allocator();
  const std::string model = argv[1];
  const int micro_batches = std::atoi(argv[2]), rounds = std::atoi(argv[3]);
  if (model == "sleep")
    measure_sleep(micro_batches, rounds);
  else if (model == "messages")
    measure_messages(/*kib=*/micro_batches, rounds);
  else
    measure(Model(model), micro_batches, rounds, argc > 4 ? argv[4] : "");
  dist::destroy_process_group();
  return 0;
}
