#include "lockstep/parallel/tensor_parallel/model_state.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/utils.h>

#include <algorithm>
#include <functional>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/checkpoint_state.h"
#include "lockstep/checkpoint/full_state_dict.h"
#include "lockstep/checkpoint/load_checkpoint.h"
#include "lockstep/checkpoint/save_checkpoint.h"
#include "lockstep/job/groups.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/lamb.h"
#include "lockstep/optim/lars.h"
#include "lockstep/parallel/tensor_parallel/cross_entropy.h"
#include "lockstep/parallel/tensor_parallel/parallel_transformer_layer.h"
#include "lockstep/parallel/tensor_parallel/vocab_parallel_embedding.h"
#include "lockstep/parallel/zero/sharded_data_parallel.h"
#include "testing/ranks.h"
#include "testing/shared_folder.h"
#include "testing/tensor_near.h"

// Trainings on groups of different sizes: of all ranks, of pairs, and of each rank alone.
namespace lockstep::tensor_parallel {
namespace model_states {
namespace {

using testing::expect_near;
using ::testing::HasSubstr;
using testing::SharedFolder;
using ::testing::ThrowsMessage;

constexpr std::int64_t VOCABULARY = 13, HIDDEN = 16;

struct NetImpl : torch::nn::Module {
  explicit NetImpl(const ProcessGroup& of) : group(of) {
    const TransformerConfig config{.hidden_size = HIDDEN, .num_attention_heads = 4};
    wte = register_module("wte", VocabParallelEmbedding(VOCABULARY, HIDDEN, group));
    layer = register_module("layer", ParallelTransformerLayer(config, group));
    count = register_buffer("count", at::zeros({}, at::kLong));
  }
  at::Tensor loss(const at::Tensor& tokens, const at::Tensor& targets) {
    const at::Tensor logits = column_parallel_linear(layer(wte(tokens)), wte->weight, {}, {.group = group});
    count += 1;
    return vocab_parallel_cross_entropy(logits, targets, group, {.vocab_size = VOCABULARY});
  }

  ProcessGroup group;
  VocabParallelEmbedding wte{nullptr};
  ParallelTransformerLayer layer{nullptr};
  at::Tensor count;
};
TORCH_MODULE(Net);

struct Training {
  explicit Training(const ProcessGroup& group, std::uint64_t seed = 3)
      : net(made(group, seed)),
        optimizer(net->named_parameters().pairs(), optim::AdamWOptions(1e-2)),
        model_state(*net),
        optimizer_state(optimizer, *net) {
    state.add("model", model_state).add("optimizer", optimizer_state);
  }

  void run(int steps) {
    for (int i = 0; i < steps; ++i, ++step) {
      const at::Tensor tokens = (at::arange(25, at::kLong) * (3 + step)).remainder(VOCABULARY);
      optimizer.zero_grad();
      net->loss(tokens.narrow(0, 0, 24).view({4, 6}), tokens.narrow(0, 1, 24).view({4, 6})).backward();
      norms.push_back(clip_grad_norm_(*net, 0.5, net->group));
      optimizer.step();
    }
  }

  static Net made(const ProcessGroup& group, std::uint64_t seed) {
    torch::manual_seed(seed);
    Net net(group);
    net->to(at::kDouble);
    return net;
  }

  Net net;
  optim::AdamW optimizer;
  ModelState model_state;
  OptimizerState optimizer_state;
  CheckpointState state;
  std::vector<double> norms;
  int step = 0;
};

// Every parameter, and every state of it, is its part of that of `whole`, a training in one process. The
// gradient of the keys' bias is zero but for rounding, 1e-17, and AdamW divides it by 1e-8.
constexpr double TOLERANCE = 1e-10;
void expect_parts(const Training& training, const Training& whole, double tolerance = TOLERANCE) {
  std::map<std::string, Partition> partitions;
  for (const ParameterPiece& piece : named_pieces(*training.net)) partitions[piece.name] = piece.partition;
  const auto expect_part = [&](const std::string& parameter, const std::string& name, const at::Tensor& own,
                               const at::Tensor& of) {
    const auto part = partitions.find(parameter);
    const bool is_whole = part == partitions.end() || of.dim() == 0;
    expect_near(own, is_whole ? of : piece_of(of, part->second), tolerance, name.c_str());
  };
  const auto parameters = whole.net->named_parameters();
  for (const auto& entry : training.net->named_parameters())
    expect_part(entry.key(), entry.key(), entry.value(), parameters[entry.key()]);
  std::map<std::string, at::Tensor> states;
  for (const auto& [name, tensor] : whole.optimizer.state_dict()) states[name] = tensor;
  for (const auto& [name, tensor] : training.optimizer.state_dict()) {
    const std::string parameter = name.substr(6, name.rfind('.') - 6);  // "state.PARAMETER.KEY"
    expect_part(name.starts_with("state.") ? parameter : "", name, tensor, states.at(name));
  }
}

RANKS_TEST(ModelState, TrainsAsOneProcess, Ranks(1, 2, 4), Backends("shm", "tcp")) {
  torch::set_num_threads(1);
  Training training(world()), alone(split_group(world(), rank()));
  training.run(4);
  alone.run(4);
  expect_parts(training, alone);
  for (std::size_t i = 0; i < alone.norms.size(); ++i) {
    EXPECT_NEAR(training.norms[i], alone.norms[i], 1e-12 * alone.norms[i]);
    EXPECT_GT(alone.norms[i], 0.5);  // so clipping scales
  }
}

// Saved by four ranks, by pairs, by each alone; loaded by each of these.
RANKS_TEST(ModelState, AnyNumberOfRanksLoadsWhatAnySaved, Ranks(4)) {
  torch::set_num_threads(1);
  const std::vector<ProcessGroup> groups = {world(), split_group(world(), rank() / 2),
                                            split_group(world(), rank())};
  const SharedFolder folder(world());
  Training alone(groups[2]);
  alone.run(3);
  for (std::size_t from = 0; from < groups.size(); ++from) {
    Training saved(groups[from]);
    saved.run(3);
    // of several groups, each saves its own
    const std::string path = folder / ("by" + std::to_string(groups[from].size()) + "of" +
                                       std::to_string(groups[from].ranks().front()));
    save_checkpoint(path, saved.state, {.step = 3, .process_group = groups[from], .durable = false});
    for (const ProcessGroup& to : groups) {
      Training loaded(to, /*seed=*/77);
      comm::barrier(world());
      // a larger group takes that of the first one
      const std::string first = folder / ("by" + std::to_string(groups[from].size()) + "of0");
      load_checkpoint(first, loaded.state, {.process_group = to});
      expect_parts(loaded, alone);
      EXPECT_EQ(loaded.net->count.item<std::int64_t>(), 3);
      loaded.step = 3;
      loaded.run(1);
      Training on(groups[2]);
      on.run(4);
      expect_parts(loaded, on);
    }
  }
}

RANKS_TEST(ModelState, IsWrittenWhole, Ranks(1, 2, 4)) {
  torch::set_num_threads(1);
  Training training(world()), alone(split_group(world(), rank()));
  training.run(1);
  alone.run(1);
  const NamedTensors whole = full_state_dict(training.model_state);
  EXPECT_EQ(whole.size(), rank() == 0 ? 14 : 0);
  const auto parameters = alone.net->named_parameters();
  for (const auto& [name, tensor] : whole)
    if (name != "count") expect_near(tensor, parameters[name], TOLERANCE, name.c_str());
  EXPECT_EQ(full_state_dict(training.optimizer_state).empty(), rank() != 0);
}

// Of a group, with an optimiser of the net itself or of a wrapper around it.
template <typename Optimizer>
void run_steps(Net net, Optimizer& optimizer, const std::function<void()>& zero_grad) {
  reduce_norms(optimizer, *net, net->group);
  for (int step = 0; step < 4; ++step) {
    const at::Tensor tokens = (at::arange(25, at::kLong) * (3 + step)).remainder(VOCABULARY);
    zero_grad();
    net->loss(tokens.narrow(0, 0, 24).view({4, 6}), tokens.narrow(0, 1, 24).view({4, 6})).backward();
    optimizer.step();
  }
}

// The net of `group` alone, and the same on a mesh of that group and the ranks that hold the same pieces.
template <typename Optimizer, typename Options>
void expect_norms_of_whole_parameters(const ProcessGroup& world, int tensor, const Options& options) {
  const auto trained_on = [&](const ProcessGroup& group) {
    Net net = Training::made(group, 3);
    Optimizer optimizer(net->named_parameters().pairs(), options);
    run_steps(net, optimizer, [&] { optimizer.zero_grad(); });
    return net;
  };
  const Net alone = trained_on(split_group(world, world.rank()));
  const ProcessGroup group = split_group(world, world.rank() / tensor);
  Net on_mesh = Training::made(group, 3);
  {
    ShardedDataParallel model(on_mesh, {.process_group = split_group(world, world.rank() % tensor)});
    auto optimizer = model.template optimizer<Optimizer>(options);
    run_steps(on_mesh, optimizer, [&] { optimizer.zero_grad(); });
  }
  for (const Net& net : {trained_on(group), on_mesh}) {
    std::map<std::string, Partition> partitions;
    for (const ParameterPiece& piece : named_pieces(*net)) partitions[piece.name] = piece.partition;
    const auto parameters = alone->named_parameters();
    for (const auto& entry : net->named_parameters()) {
      const at::Tensor& whole = parameters[entry.key()];
      const auto part = partitions.find(entry.key());
      expect_near(entry.value(), part == partitions.end() ? whole : piece_of(whole, part->second), 1e-9,
                  entry.key().c_str());
    }
  }
}

RANKS_TEST(ModelState, LarsAndLambTakeTheNormsOfWholeParameters, Ranks(1, 2, 4), Backends("shm", "tcp")) {
  torch::set_num_threads(1);
  const int tensor = std::min(size(), 2);
  const auto lamb = optim::LAMBOptions(1e-2).weight_decay(0.01).max_grad_norm(0.5);
  expect_norms_of_whole_parameters<optim::LAMB>(world(), tensor, lamb);
  const auto lars = optim::LARSOptions(0.1).momentum(0.9).weight_decay(1e-3).trust_coefficient(0.1);
  expect_norms_of_whole_parameters<optim::LARS>(world(), tensor, lars);
}

RANKS_TEST(ModelState, RefusesAnOptimiserWithoutNames, Ranks(1, 2)) {
  Net net(world());
  optim::LAMB lamb(net->parameters(), optim::LAMBOptions(1e-2));
  EXPECT_THAT([&] { reduce_norms(lamb, *net, world()); },
              ThrowsMessage<InvalidArgument>(HasSubstr("named_parameters")));
  optim::AdamW optimizer(net->parameters(), optim::AdamWOptions(1e-2));
  OptimizerState optimizer_state(optimizer, *net);
  CheckpointState state;
  state.add("optimizer", optimizer_state);
  const SharedFolder folder(world());
  EXPECT_THAT([&] { save_checkpoint(folder.path(), state); },
              ThrowsMessage<InvalidArgument>(HasSubstr("named_parameters")));
}

}  // namespace
}  // namespace model_states
}  // namespace lockstep::tensor_parallel
