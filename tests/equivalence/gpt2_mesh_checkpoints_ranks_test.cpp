// Checkpoints of a GPT-2 on one mesh, loaded by others and by one process: the same state to the bit.
#include "lockstep/checkpoint/checkpoint_state.h"
#include "lockstep/checkpoint/full_state_dict.h"
#include "lockstep/checkpoint/load_checkpoint.h"
#include "lockstep/checkpoint/save_checkpoint.h"
#include "testing/ranks.h"
#include "testing/shared_folder.h"
#include "tests/equivalence/gpt2_on_mesh.h"

namespace lockstep {
namespace gpt2_mesh_checkpoints {
namespace {

using namespace gpt2_on_mesh;  // NOLINT(google-build-using-namespace): the model under test
using testing::SharedFolder;

struct Saved {
  explicit Saved(OnMesh& of) : model(of.model, *of.net), optimizer(of.optimizer, *of.net) {
    state.add("model", model).add("optimizer", optimizer);
  }
  tp::ModelState model;
  tp::OptimizerState optimizer;
  CheckpointState state;
};

// In one process: on every rank the same.
struct Plain {
  explicit Plain(std::uint64_t seed)
      : net(whole_net({}, seed)), optimizer(net->named_parameters().pairs(), optim::AdamWOptions(3e-3)) {
    state.add("model", net).add("optimizer", optimizer);
  }
  models::GPT2 net;
  optim::AdamW optimizer;
  CheckpointState state;
};

void expect_equal(const NamedTensors& a, const NamedTensors& b) {
  std::map<std::string, at::Tensor> of_b(b.begin(), b.end());
  EXPECT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) {
    const auto found = of_b.find(name);
    EXPECT_TRUE(found != of_b.end() && tensor.equal(found->second)) << name;
  }
}

void expect_state(const NamedTensors& model, const NamedTensors& optimizer, Saved& loaded) {
  expect_equal(full_state_dict(loaded.model), model);
  expect_equal(full_state_dict(loaded.optimizer), optimizer);
}

// tensor x pipeline x data of the saved run is 2 x 2 x 2.
RANKS_TEST(GPT2MeshCheckpoints, AnyMeshLoadsThem, Ranks(8), Backends("shm")) {
  torch::set_num_threads(1);
  const SharedFolder folder(world());
  OnMesh saved({.tensor = 2, .pipeline = 2}, {.steps = 2});
  saved.train();
  Saved of_saved(saved);
  save_checkpoint(folder / "run", of_saved.state, {.durable = false});
  const NamedTensors model = full_state_dict(of_saved.model), optimizer = full_state_dict(of_saved.optimizer);
  EXPECT_EQ(model.empty(), rank() != 0);

  for (const ModelParallelSizes& sizes :
       {ModelParallelSizes{.pipeline = 2}, ModelParallelSizes{}, ModelParallelSizes{.tensor = 8},
        ModelParallelSizes{.tensor = 2, .pipeline = 4},
        ModelParallelSizes{.tensor = 2, .pipeline = 2, .virtual_pipeline = 2},
        ModelParallelSizes{.pipeline = 4, .context = 2}}) {
    SCOPED_TRACE(words_of(sizes));
    OnMesh other(sizes, {.micro_batches = 1}, /*seed=*/7);
    Saved of_other(other);
    load_checkpoint(folder / "run", of_other.state);
    expect_state(model, optimizer, of_other);
    EXPECT_NEAR(other.pass(TextBatch(2)), saved.pass(TextBatch(2)), 1e-10);  // and goes on
    saved.model.zero_grad();
  }

  Plain plain(7);
  load_checkpoint(folder / "run", plain.state);
  expect_parts(*saved.net, *plain.net, 0);
  if (rank() == 0) expect_equal(plain.optimizer.state_dict(), optimizer);
}

// What meshes of chunks, of a V and of parts of the sequence saved, another mesh and one process load.
RANKS_TEST(GPT2MeshCheckpoints, AnyMeshSavesThem, Ranks(4), Backends("shm")) {
  torch::set_num_threads(1);
  const SharedFolder folder(world());
  const auto check = [&](const ModelParallelSizes& sizes, const Training& training) {
    SCOPED_TRACE(words_of(sizes));
    OnMesh saved(sizes, training);
    saved.train();
    Saved of_saved(saved);
    save_checkpoint(folder / "run", of_saved.state, {.durable = false});
    const NamedTensors model = full_state_dict(of_saved.model),
                       optimizer = full_state_dict(of_saved.optimizer);

    OnMesh other({.tensor = 2, .pipeline = 2}, {}, /*seed=*/7);
    Saved of_other(other);
    load_checkpoint(folder / "run", of_other.state);
    expect_state(model, optimizer, of_other);
    Plain plain(7);
    load_checkpoint(folder / "run", plain.state);
    expect_parts(*saved.net, *plain.net, 0);
    if (rank() == 0) expect_equal(plain.optimizer.state_dict(), optimizer);
  };
  check({.pipeline = 2, .virtual_pipeline = 2}, {.steps = 2});
  check({.pipeline = 2, .virtual_pipeline = 2}, {.schedule = PipelineScheduleKind::ZB_V, .steps = 2});
  check({.tensor = 2, .context = 2}, {.steps = 2});
  check({.pipeline = 2, .context = 2}, {.steps = 2});
}

// What one process saved, a mesh loads; and both go on alike.
RANKS_TEST(GPT2MeshCheckpoints, LoadThoseOfOneProcess, Ranks(1, 2, 4)) {
  torch::set_num_threads(1);
  const SharedFolder folder(world());
  Plain plain(1);
  const auto step_plain = [&](int step) {
    plain.optimizer.zero_grad();
    const TextBatch batch(step);
    models::next_token_loss(plain.net->forward(batch.tokens), batch.targets).backward();
    clip_grad_norm_(plain.net->parameters(), CLIP);
    plain.optimizer.step();
  };
  step_plain(0);
  save_checkpoint(folder / "run", plain.state, {.durable = false});
  step_plain(1);
  OnMesh other({.tensor = size() > 1 ? 2 : 1, .pipeline = size() / 2 > 1 ? 2 : 1}, {.steps = 1}, /*seed=*/7);
  Saved of_other(other);
  load_checkpoint(folder / "run", of_other.state);
  other.train(/*first=*/1);
  expect_parts(*other.net, *plain.net, 1e-9);
}

}  // namespace
}  // namespace gpt2_mesh_checkpoints
}  // namespace lockstep
