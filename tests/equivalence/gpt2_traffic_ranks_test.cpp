// What a step of GPT-2 exchanges along each axis of a mesh, by formulas.
#include <array>
#include <optional>

#include "lockstep/base/dtype.h"
#include "lockstep/base/round_up.h"
#include "lockstep/comm/collectives/barrier.h"
#include "lockstep/comm/trace/rank_trace.h"
#include "lockstep/os/process.h"
#include "testing/ranks.h"
#include "tests/equivalence/gpt2_on_mesh.h"

namespace lockstep {
namespace gpt2_traffic {
namespace {

using namespace gpt2_on_mesh;  // NOLINT(google-build-using-namespace): the model under test

constexpr int MICRO_BATCHES = 2;
constexpr std::uint64_t WIDTH = 16, ELEMENT = sizeof(double);
constexpr std::array GROUPS = {"tp", "cp", "pp", "pp/wte", "dp-cp"};

// Bytes of the buffers of a rank's calls, by group and verb.
using Bytes = std::map<std::string, std::uint64_t>;

std::string key(const std::string& group, Verb verb) { return lockstep::str(group, " ", name_of(verb)); }

// This rank's group of that name in the flight recorder; nothing if it has one rank, which sends nothing.
std::optional<GroupTrace> trace_of(const std::string& group) {
  for (const RankTrace& trace : live_traces(current_pid()))
    for (const GroupTrace& candidate : trace.groups)
      if (trace.pid == current_pid() && candidate.name == group && candidate.members.size() > 1)
        return candidate;
  return {};
}

// Counts the calls since it was made. Parameters go back as bytes; what has other types is the library's own,
// such as the sizes of messages.
class Traffic {
 public:
  Traffic() {
    for (const char* const group : GROUPS)
      if (const auto trace = trace_of(group)) before_[group] = trace->calls;
  }
  Bytes bytes() const {
    Bytes sums;
    for (const auto& [group, before] : before_) {
      const GroupTrace trace = trace_of(group).value();
      EXPECT_GE(trace.records.size(), trace.calls - before) << group << ": the recorder forgot some";
      for (std::size_t i = trace.records.size() - (trace.calls - before); i < trace.records.size(); ++i) {
        const Call& call = trace.records[i].call;
        if (call.count > 0 && (call.dtype == DType::FLOAT64 || call.dtype == DType::UINT8))
          sums[key(group, call.verb)] += call.count * size_of(call.dtype);
      }
    }
    return sums;
  }

 private:
  std::map<std::string, std::uint64_t> before_;
};

// A mesh whose step is counted.
struct Setting {
  ModelParallelSizes sizes;
  bool sequence_parallel = false;
};

// What one rank calls in a step, by formulas.
class Formulas {
 public:
  Formulas(const Setting& setting, const OnMesh& on_mesh)
      : sizes_(setting.sizes),
        sequence_parallel_(setting.sequence_parallel),
        is_first_(on_mesh.mesh.is_pipeline_first_stage()),
        is_last_(on_mesh.mesh.is_pipeline_last_stage()),
        layers_(4 / ranks(sizes_.pipeline)),
        tokens_(ROWS / ranks(on_mesh.mesh.get_data_parallel_world_size()) / MICRO_BATCHES * LENGTH /
                ranks(sizes_.context)),
        tied_(ELEMENT * static_cast<std::uint64_t>(on_mesh.net->tied_weight().numel())) {}

  Bytes bytes() const {
    Bytes sums;
    if (sizes_.tensor > 1) sequence_parallel_ ? of_sequence_parallel(sums) : of_tensor_parallel(sums);
    if (sizes_.context > 1) of_ring(sums);
    if (sizes_.pipeline > 1) of_pipeline(sums);
    return sums;
  }

 private:
  static std::uint64_t ranks(int number) { return static_cast<std::uint64_t>(number); }
  std::uint64_t activations() const { return MICRO_BATCHES * tokens_ * WIDTH * ELEMENT; }

  // The embedding is summed. The last stage has of each token a maximum, a sum and the target's logit.
  std::uint64_t sums_of_ends() const {
    return (is_first_ ? activations() : 0) + (is_last_ ? MICRO_BATCHES * 3 * tokens_ * ELEMENT : 0);
  }
  // Attention and MLP of a layer: a sum forward and one backward each. The output layer: that of its input's
  // gradient.
  void of_tensor_parallel(Bytes& sums) const {
    sums[key("tp", Verb::ALL_REDUCE)] =
        4 * layers_ * activations() + sums_of_ends() + (is_last_ ? activations() : 0);
  }
  // Each sum of activations becomes a reduce_scatter of parts. Column-parallel layers gather their input
  // forward and again backward, row-parallel layers their gradient, and the embedding its gradient. Two
  // LayerNorms a layer and a last one have a weight and a bias each, whose gradients are sums.
  void of_sequence_parallel(Bytes& sums) const {
    const std::uint64_t part = activations() / ranks(sizes_.tensor);
    sums[key("tp", Verb::ALL_GATHER)] = part * (6 * layers_ + (is_first_ ? 1 : 0) + (is_last_ ? 2 : 0));
    sums[key("tp", Verb::REDUCE_SCATTER)] = part * (4 * layers_ + (is_last_ ? 1 : 0));
    sums[key("tp", Verb::ALL_REDUCE)] =
        sums_of_ends() + MICRO_BATCHES * (2 * layers_ + (is_last_ ? 1 : 0)) * 2 * WIDTH * ELEMENT;
  }
  // Keys and values of this rank's heads go round to all others, forward and again backward; their gradients
  // go round to their owner.
  void of_ring(Bytes& sums) const {
    const std::uint64_t pair = 2 * activations() / ranks(sizes_.tensor);
    const std::uint64_t bytes = layers_ * pair * (2 * (ranks(sizes_.context) - 1) + ranks(sizes_.context));
    sums[key("cp", Verb::SEND)] = sums[key("cp", Verb::RECV)] = bytes;
  }
  // Activations one way, their gradients the other; the gradient of the tied embedding's rows that this rank
  // has; and the step's report of eight numbers.
  void of_pipeline(Bytes& sums) const {
    const std::uint64_t edges = (is_first_ ? 0 : 1) + (is_last_ ? 0 : 1);
    const std::uint64_t message = activations() / (sequence_parallel_ ? ranks(sizes_.tensor) : 1);
    sums[key("pp", Verb::SEND)] = sums[key("pp", Verb::RECV)] = edges * message;
    if (is_first_ || is_last_) sums[key("pp/wte", Verb::ALL_REDUCE)] = tied_;
    sums[key("pp", Verb::ALL_GATHER)] = 8 * ELEMENT;
  }

  const ModelParallelSizes sizes_;
  const bool sequence_parallel_, is_first_, is_last_;
  const std::uint64_t layers_, tokens_;  // of this stage; of a micro-batch of one copy, on this rank
  const std::uint64_t tied_;
};

std::uint64_t take(Bytes& from, const std::string& name) {
  const auto found = from.extract(name);
  return found ? found.mapped() : 0;
}

// Copies read each other's gradients and parameters where they share memory. Otherwise each receives its part
// of the gradients, and gives back the part of the parameters that it stepped. In both, each parameter begins
// on a cache line of its own.
void expect_of_copies(const OnMesh& on_mesh, const std::string& backend, Bytes& counted) {
  constexpr std::size_t LINE = 64;
  const ProcessGroup& copies = on_mesh.copies();
  std::uint64_t parameters = 0;
  for (const at::Tensor& parameter : on_mesh.net->parameters())
    parameters += round_up(parameter.nbytes(), LINE);
  const bool shares_memory = backend == "shm" || copies.size() == 1;
  for (const Verb verb : {Verb::REDUCE_SCATTER, Verb::ALL_GATHER}) {
    std::uint64_t parts = take(counted, key("dp-cp", verb));
    comm::all_reduce(copies, std::span(&parts, 1), ReduceOp::SUM).wait();
    EXPECT_EQ(parts, shares_memory ? 0 : parameters) << name_of(verb);
  }
  EXPECT_EQ(take(counted, key("dp-cp", Verb::ALL_REDUCE)), copies.size() > 1 ? ELEMENT : 0) << "the loss";
}

void compare(const std::string& backend, const Setting& setting) {
  torch::set_num_threads(1);
  OnMesh on_mesh(setting.sizes,
                 {.micro_batches = MICRO_BATCHES, .sequence_parallel = setting.sequence_parallel});
  const auto step = [&] {
    on_mesh.pass(TextBatch(0));
    on_mesh.optimizer.step();
  };
  step();  // shapes are agreed in the first
  const Traffic traffic;
  step();
  Bytes counted = traffic.bytes();
  expect_of_copies(on_mesh, backend, counted);
  EXPECT_EQ(counted, Formulas(setting, on_mesh).bytes());
  comm::barrier(world());
}

RANKS_TEST(GPT2Traffic, OfTensorAndPipeline, Ranks(8), Backends("shm", "tcp")) {
  compare(backend_name(), {{.tensor = 2, .pipeline = 2}});
}
RANKS_TEST(GPT2Traffic, OfFourStages, Ranks(8), Backends("shm", "tcp")) {
  compare(backend_name(), {{.tensor = 2, .pipeline = 4}});
}
RANKS_TEST(GPT2Traffic, OfSequenceParallelism, Ranks(8), Backends("shm", "tcp")) {
  compare(backend_name(), {{.tensor = 4}, /*sequence_parallel=*/true});
}
RANKS_TEST(GPT2Traffic, OfARingOfThree, Ranks(3), Backends("shm", "tcp")) {
  compare(backend_name(), {{.context = 3}});
}
RANKS_TEST(GPT2Traffic, OfContextTensorAndPipeline, Ranks(8), Backends("shm", "tcp")) {
  compare(backend_name(), {{.tensor = 2, .pipeline = 2, .context = 2}});
}
RANKS_TEST(GPT2Traffic, OfAllAxesWithSequenceParallelism, Ranks(8), Backends("shm", "tcp")) {
  compare(backend_name(), {{.tensor = 2, .pipeline = 2, .context = 2}, /*sequence_parallel=*/true});
}

}  // namespace
}  // namespace gpt2_traffic
}  // namespace lockstep
