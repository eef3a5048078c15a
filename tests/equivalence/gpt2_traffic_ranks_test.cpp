// How many elements a step of GPT-2 exchanges along each axis of a mesh, by formulas.
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
constexpr std::uint64_t WIDTH = 16, LAYERS = 2;  // of a stage

// What this rank called on a group of this name, as the flight recorder has it.
std::vector<Call> calls_on(const std::string& group) {
  std::vector<Call> calls;
  for (const RankTrace& trace : live_traces(current_pid())) {
    if (trace.pid != current_pid()) continue;
    for (const GroupTrace& candidate : trace.groups)
      if (candidate.name == group)
        for (const TraceRecord& record : candidate.records) calls.push_back(record.call);
  }
  return calls;
}

// Elements of the model's type in such calls of one step.
class Traffic {
 public:
  void begin() {
    for (const char* const group : {"tp", "pp", "pp/wte", "dp-cp"}) before_[group] = calls_on(group).size();
  }
  std::uint64_t of(const std::string& group, Verb verb) const {
    const std::vector<Call> calls = calls_on(group);
    std::uint64_t count = 0;
    for (std::size_t i = before_.at(group); i < calls.size(); ++i)
      if (calls[i].verb == verb && calls[i].dtype == DType::FLOAT64) count += calls[i].count;
    return count;
  }

 private:
  std::map<std::string, std::size_t> before_;
};

RANKS_TEST(GPT2Traffic, IsThatOfTheFormulas, Ranks(8), Backends("shm", "tcp")) {
  torch::set_num_threads(1);
  OnMesh on_mesh({.tensor = 2, .pipeline = 2}, {.micro_batches = MICRO_BATCHES});
  const auto step = [&] {
    on_mesh.pass(TextBatch(0));
    on_mesh.optimizer.step();
  };
  step();  // shapes are agreed in the first
  Traffic traffic;
  traffic.begin();
  step();

  const std::uint64_t tokens = ROWS / 2 / MICRO_BATCHES * LENGTH;  // of a micro-batch of one copy
  const std::uint64_t activations = tokens * WIDTH;
  // A layer's attention and MLP: a sum forward and one backward each. The first stage: the embedding's sum.
  // The last one: the gradient of the output layer's input, and of each token a maximum, a sum and the
  // target's logit.
  const std::uint64_t layers = 4 * LAYERS * activations;
  const bool is_first = on_mesh.mesh.is_pipeline_first_stage();
  EXPECT_EQ(traffic.of("tp", Verb::ALL_REDUCE),
            MICRO_BATCHES * (layers + activations + (is_first ? 0 : 3 * tokens)));
  // Activations one way, their gradients the other.
  EXPECT_EQ(traffic.of("pp", Verb::SEND), MICRO_BATCHES * activations);
  EXPECT_EQ(traffic.of("pp", Verb::RECV), MICRO_BATCHES * activations);
  // The rows of the tied embedding that this rank has.
  EXPECT_EQ(traffic.of("pp/wte", Verb::ALL_REDUCE),
            static_cast<std::uint64_t>(on_mesh.net->tied_weight().numel()));
  // Copies read each other's gradients where they share memory. Otherwise each receives its part, and then
  // the parameters that the others stepped.
  std::uint64_t parameters = 0;
  for (const at::Tensor& parameter : on_mesh.net->parameters())
    parameters += static_cast<std::uint64_t>(parameter.numel());
  if (backend_name() == "shm") {
    EXPECT_EQ(traffic.of("dp-cp", Verb::REDUCE_SCATTER), 0U);
  } else {
    std::uint64_t received = traffic.of("dp-cp", Verb::REDUCE_SCATTER);
    comm::all_reduce(on_mesh.copies(), std::span(&received, 1), ReduceOp::SUM).wait();
    EXPECT_EQ(received, parameters);
  }
  comm::barrier(world());
}

}  // namespace
}  // namespace gpt2_traffic
}  // namespace lockstep
