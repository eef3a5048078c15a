// Text of a GPT-2 that lies on several ranks beside that of models::GPT2 in one process.
#include <ATen/CPUGeneratorImpl.h>

#include "lockstep/models/tensor_parallel_gpt2.h"
#include "testing/ranks.h"
#include "tests/equivalence/gpt2_on_mesh.h"

namespace lockstep {
namespace gpt2_generate {
namespace {

using namespace gpt2_on_mesh;  // NOLINT(google-build-using-namespace): the model under test

constexpr std::uint64_t SEED = 7;

at::Generator generator_of(std::uint64_t seed) { return at::make_generator<at::CPUGeneratorImpl>(seed); }

// Two rows, of odd length. Copies of the model continue texts of their own.
at::Tensor prompt_of(int copy) { return TextBatch(copy).tokens.slice(0, 0, 2).slice(1, 0, 5); }

// More tokens than the model has places.
std::vector<models::GenerateOptions> ways() {
  return {{.max_new_tokens = 10},
          {.max_new_tokens = 3, .context = 4},
          {.max_new_tokens = 10, .do_sample = true, .temperature = 0.7, .top_k = 9}};
}

// Only the rank that draws has the generator of the one process.
template <typename Net> void compare(Net& net, models::GPT2& whole, const at::Tensor& prompt, bool draws) {
  for (models::GenerateOptions way : ways()) {
    way.generator = generator_of(SEED);
    const at::Tensor expected = whole->generate(prompt, way);
    way.generator = generator_of(draws ? SEED : 100 + static_cast<std::uint64_t>(get_rank()));
    EXPECT_TRUE(net->generate(prompt, way).equal(expected)) << (way.do_sample ? "sampled" : "greedy");
    if (way.do_sample) continue;
    way.eos_token_id = expected[0][prompt.size(1)].template item<std::int64_t>();
    EXPECT_TRUE(net->generate(prompt, way).equal(whole->generate(prompt, way))) << "with an end";
  }
  EXPECT_TRUE(net->is_training());
}

void compare_on(const ModelParallelSizes& sizes, const Training& training = {}) {
  SCOPED_TRACE(words_of(sizes));
  models::GPT2 whole = whole_net(training);
  OnMesh on_mesh(sizes, training);
  const ModelParallel& mesh = on_mesh.mesh;
  const PipelineShape shape{.kind = training.schedule,
                            .stages = mesh.get_pipeline_model_parallel_world_size(),
                            .virtual_stages = on_mesh.net->chunks()};
  const bool is_last = mesh.get_pipeline_model_parallel_rank() == shape.rank_of(shape.parts() - 1);
  const bool draws =
      is_last && mesh.get_tensor_model_parallel_rank() == 0 && mesh.get_context_parallel_rank() == 0;
  compare(on_mesh.net, whole, prompt_of(mesh.get_data_parallel_rank()), draws);
  on_mesh.train();  // within its optimiser's memory, and with the pipeline's messages before it
  train_whole(whole, training);
  compare(on_mesh.net, whole, prompt_of(mesh.get_data_parallel_rank()), draws);
}

RANKS_TEST(GPT2Generates, OnEveryMeshWhatOneProcessDoes, Ranks(1, 2, 4)) {
  torch::set_num_threads(1);
  for (const int t : {1, 2})
    for (const int p : {1, 2})
      for (const int c : {1, 2})
        if (size() % (t * p * c) == 0)
          compare_on({.tensor = t, .pipeline = p, .context = c}, {.steps = 2, .sequence_parallel = t == 2});
}

RANKS_TEST(GPT2Generates, OnAllAxes, Ranks(8), Backends("shm")) {
  torch::set_num_threads(1);
  compare_on({.tensor = 2, .pipeline = 2, .context = 2}, {.steps = 2, .sequence_parallel = true});
  compare_on({.tensor = 2, .pipeline = 2, .context = 2}, {.steps = 2, .tied = false});
}

RANKS_TEST(GPT2Generates, WhicheverPartsARankHas, Ranks(2, 4), Backends("shm", "tcp")) {
  torch::set_num_threads(1);
  compare_on({.tensor = size() / 2, .pipeline = 2, .virtual_pipeline = 2},
             {.steps = 2, .sequence_parallel = true});
  compare_on({.pipeline = 2}, {.schedule = PipelineScheduleKind::ZB_V, .steps = 2});
}

RANKS_TEST(GPT2Generates, InTensorParallel, Ranks(1, 2, 3, 4)) {
  torch::set_num_threads(1);
  models::GPT2Config config = gpt2_on_mesh::config();
  config.n_head = config.n_embd = 12;
  for (const bool in_parts : {false, true}) {
    torch::manual_seed(1);
    models::GPT2 whole(config);
    torch::manual_seed(1);
    models::TensorParallelGPT2 net(config, world(),
                                   models::TensorParallelGPT2Options{.sequence_parallel = in_parts});
    whole->to(at::kDouble);
    net->to(at::kDouble);
    compare(net, whole, prompt_of(0), rank() == 0);
  }
}

}  // namespace
}  // namespace gpt2_generate
}  // namespace lockstep
