// Milliseconds of a pipeline's step (forward and backward of a batch, no optimiser) on two ranks of one
// thread, for each schedule, beside two halves that exchange nothing.
//
//   lockstep run -n 2 build/bench/pipeline_step mlp 4 30       # or gpt; 4 or 8 micro-batches; 30 rounds
//   lockstep run -n 2 python bench/peers/pipeline_step.py mlp 4 30    # torch.distributed.pipelining
//   lockstep run -n 2 build/bench/pipeline_step messages 1536 300     # a value of 1.5 MiB; 300 rounds
//
// mlp    sixteen layers of 1024 x 1024 with ReLU, 256 rows a batch
// gpt    eight blocks of GPT-2, width 384 with 6 heads, 16 sequences of 128 places a batch
// sleep  stages that sleep: 200 ms for the forward of a micro-batch, as long for the gradient of its inputs,
//        and for that of its parameters. Any number of ranks; prints the measured bubble beside the table's.
//
// messages  microseconds in which a value goes from one stage to the next, which reads it once: half of a
//           round in which it comes back as a gradient. Median of the rounds.
//
// halves is the least that two ranks can do: each runs its half of the layers forward and backward for each
// micro-batch, on inputs and gradients of its own, and then they meet. `times_halves` of a schedule with no
// bubble is 1. `ideal` is the makespan of the schedule's table where each action takes as long as in halves
// that exchange nothing either and run the actions of that table in its order: what lies between a forward
// and its backward, or between the halves of a backward, empties the caches. "zb-v cut" has the cut, and the
// order, that are best for the times of a forward and of the halves of a backward that were measured before.
// Rounds run all schedules in turn; medians of the rounds. Prints one JSON object per rank and schedule.
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
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/job/job.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/parallel/pipeline/part_messages.h"
#include "lockstep/parallel/pipeline/pipeline.h"
#include "lockstep/parallel/pipeline/split_backward.h"
#include "lockstep/schedules/pipeline_balance.h"
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

// The layers of a model, in order; a part of the pipeline is several of them.
struct Model {
  std::string name;
  std::vector<nn::Sequential> layers;
  at::Tensor batch;

  explicit Model(const std::string& which) : name(which) {
    torch::manual_seed(1);
    if (which == "mlp") {
      for (int i = 0; i < 16; ++i) layers.emplace_back(nn::Linear(1024, 1024), nn::ReLU());
      batch = at::randn({256, 1024});
    } else if (which == "gpt") {
      const dist::models::GPT2Config config{
          .n_positions = 128, .n_embd = 384, .n_head = 6, .embd_pdrop = 0, .attn_pdrop = 0, .resid_pdrop = 0};
      for (int i = 0; i < 8; ++i) layers.emplace_back(dist::models::GPT2Block(config));
      batch = at::randn({16, 128, 384});
    }
  }
  std::vector<std::int64_t> even(int parts) const {
    return std::vector<std::int64_t>(static_cast<std::size_t>(parts),
                                     static_cast<std::int64_t>(layers.size()) / parts);
  }
  nn::Sequential part(int index, const std::vector<std::int64_t>& balance) const {
    nn::Sequential net;
    const auto first = std::accumulate(balance.begin(), balance.begin() + index, std::int64_t{0});
    for (std::int64_t i = first; i < first + balance[static_cast<std::size_t>(index)]; ++i)
      for (const auto& module : *layers[static_cast<std::size_t>(i)]) net->push_back(module);
    return net;
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

struct Contender {
  dist::PipelineShape shape;
  std::unique_ptr<dist::Pipeline> pipeline;
  std::vector<nn::Sequential> nets;
  std::vector<double> ms, ratios, ideals, waited;

  std::vector<dist::PipelineAction> actions() const {
    return pipeline_schedule(shape).ranks[static_cast<std::size_t>(dist::get_rank())];
  }

  std::string label() const {
    return std::string(name_of(shape.kind)) +
           (shape.virtual_stages > 1 && shape.kind == ONE_F_ONE_B ? " x2" : "") +
           (shape.work.part_sizes.empty() ? "" : " cut");
  }
};

// What a forward and the halves of a backward take in a half of the model, the mean of the ranks.
dist::PipelineWork measure_work(const Model& model, int micro_batches) {
  nn::Sequential half = model.part(dist::get_rank(), model.even(dist::get_world_size()));
  const std::vector<at::Tensor> pieces = model.batch.chunk(micro_batches);
  at::Tensor ms = at::zeros({3}, at::kDouble);
  for (int round = -2; round < 8; ++round) {
    if (round == 0) ms.zero_();
    for (const at::Tensor& piece : pieces) {
      const at::Tensor input = piece.detach().requires_grad_();
      const double start = now_ms();
      const at::Tensor output = half->forward(input);
      const double computed = now_ms();
      dist::SplitBackward backward({output}, {at::ones_like(output)}, {input});
      const double sent = now_ms();
      backward.accumulate();
      ms += at::tensor({computed - start, sent - computed, now_ms() - sent}, at::kDouble);
    }
  }
  dist::all_reduce(ms, dist::ReduceOp::AVG);
  return {.forward = ms[0].item<double>(),
          .backward_input = ms[1].item<double>(),
          .backward_weight = ms[2].item<double>()};
}

// The shapes of all schedules; ZB_V a second time, cut and ordered for the times measured.
std::vector<dist::PipelineShape> make_shapes(const Model& model, int micro_batches) {
  std::vector<dist::PipelineShape> shapes;
  for (const auto& [kind, chunks] : std::vector<std::pair<dist::PipelineScheduleKind, int>>{
           {GPIPE, 1}, {ONE_F_ONE_B, 1}, {ONE_F_ONE_B, 2}, {ZB_H1, 1}, {ZB_V, 2}})
    shapes.push_back({.kind = kind,
                      .stages = dist::get_world_size(),
                      .micro_batches = micro_batches,
                      .virtual_stages = chunks});
  if (model.layers.empty()) return shapes;
  shapes.push_back(shapes.back());
  shapes.back().work = measure_work(model, micro_batches);
  const std::vector<double> costs(model.layers.size(), 1);
  shapes.back().work = balance_pipeline(shapes.back(), costs).work;
  return shapes;
}

std::vector<Contender> make_contenders(const Model& model, int micro_batches) {
  std::vector<Contender> all;
  for (const dist::PipelineShape& shape : make_shapes(model, micro_batches)) {
    Contender one{.shape = shape};
    const std::vector<std::int64_t> balance =
        shape.work.part_sizes.empty()
            ? model.even(shape.parts())
            : std::vector<std::int64_t>(shape.work.part_sizes.begin(), shape.work.part_sizes.end());
    std::vector<dist::PipelineStage> stages;
    for (int chunk = 0; chunk < shape.virtual_stages; ++chunk) {
      one.nets.push_back(model.part(shape.part_of(dist::get_rank(), chunk), balance));
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
  std::printf(
      "{\"model\": \"%s\", \"micro_batches\": %d, \"schedule\": \"%s\", \"ms\": %.2f, "
      "\"times_halves\": %.3f, \"times_ideal\": %.3f, \"waited_ms\": %.2f}\n",
      model.name.c_str(), one.shape.micro_batches, one.label().c_str(), median(one.ms), median(one.ratios),
      median(one.ideals), median(one.waited));
}

void measure(const Model& model, int micro_batches, int rounds) {
  std::vector<Contender> contenders = make_contenders(model, micro_batches);
  std::vector<nn::Sequential> half = {model.part(dist::get_rank(), model.even(dist::get_world_size()))};
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
  const dist::PipelineWork& work = contenders.back().shape.work;
  for (const Contender& one : contenders) print_one(model, one);
  if (dist::get_rank() > 0) return;
  for (const double size : work.part_sizes) std::printf("cut: %.0f layers\n", size);
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
  for (Contender& one : make_contenders(Model("none"), micro_batches)) {
    const int chunks = one.shape.virtual_stages;
    const at::Tensor w = at::ones({}).requires_grad_();
    // The inputs of the first part need no gradient; this one takes as long as the others all the same.
    const dist::PipelineStage stage = [w, chunks](const at::Tensor& x) {
      return SleepyAdd::apply(x.requires_grad() ? x : x.detach().requires_grad_(), w, chunks);
    };
    dist::Pipeline pipeline(std::vector<dist::PipelineStage>(static_cast<std::size_t>(chunks), stage),
                            loss_of, {.schedule = one.shape.kind, .micro_batches = micro_batches});
    const at::Tensor batch = at::ones({micro_batches, 4});
    for (int round = 0; round < rounds; ++round) {
      dist::barrier();
      const double start = now_ms();
      pipeline.step(batch, batch);
      one.ms.push_back(now_ms() - start);
    }
    const auto timeline = dist::pipeline_timeline(pipeline_schedule(one.shape));
    const double work = 3.0 * micro_batches * static_cast<double>(SLEEP.count());
    std::printf(
        "{\"model\": \"sleep\", \"ranks\": %d, \"micro_batches\": %d, \"schedule\": \"%s\", "
        "\"bubble\": %.4f, \"table\": %.4f}\n",
        dist::get_world_size(), micro_batches, one.label().c_str(), 1 - work / median(one.ms),
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
  if (argc != 4) return 64;
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
    measure(Model(model), micro_batches, rounds);
  dist::destroy_process_group();
  return 0;
}
