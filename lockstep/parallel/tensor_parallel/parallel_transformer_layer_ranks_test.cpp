#include "lockstep/parallel/tensor_parallel/parallel_transformer_layer.h"

#include <ATen/ATen.h>
#include <torch/utils.h>

#include <map>

#include "lockstep/autograd/activation_checkpoint.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/parallel/tensor_parallel/mappings.h"
#include "lockstep/parallel/tensor_parallel/model_state.h"
#include "lockstep/parallel/tensor_parallel/random.h"
#include "testing/ranks.h"
#include "testing/tensor_near.h"
#include "testing/tensors.h"

// Against a transformer's layer written out in libtorch, in one process.
namespace lockstep::tensor_parallel {
namespace transformer_layers {
namespace {

using testing::expect_near;
using ::testing::HasSubstr;
using testing::random_values;
using ::testing::ThrowsMessage;

constexpr std::int64_t BATCH = 3, SEQUENCE = 12, HIDDEN = 32;

// The whole parameters by name. Each is drawn from its name, and a layer takes its pieces.
using Parameters = std::map<std::string, at::Tensor>;

Parameters whole_parameters(ParallelTransformerLayerImpl& layer) {
  std::map<std::string, Partition> partitions;
  for (const ParameterPiece& piece : named_pieces(layer)) partitions[piece.name] = piece.partition;
  Parameters whole;
  const at::NoGradGuard no_grad;
  std::uint64_t seed = 100;
  for (auto& entry : layer.named_parameters()) {
    at::Tensor& own = entry.value();
    const auto part = partitions.find(entry.key());
    const bool is_piece = part != partitions.end();
    const at::Tensor values =
        random_values(is_piece ? at::IntArrayRef(part->second.shape) : own.sizes(), ++seed) * 0.3;
    own.copy_(is_piece ? piece_of(values, part->second) : values);
    whole[entry.key()] = values.clone().set_requires_grad(true);
  }
  return whole;
}

// x: [batch, sequence, hidden]
at::Tensor reference(const Parameters& p, const TransformerConfig& config, const at::Tensor& x) {
  const auto norm = [&](const at::Tensor& in, const std::string& name) {
    return at::layer_norm(in, {HIDDEN}, p.at(name + ".weight"), p.at(name + ".bias"));
  };
  const auto linear = [&](const at::Tensor& in, const std::string& name) {
    return at::linear(in, p.at(name + ".weight"), p.at(name + ".bias"));
  };
  const std::int64_t heads = config.num_attention_heads, groups = config.query_groups(),
                     size = HIDDEN / heads;
  const at::Tensor qkv = linear(norm(x, "input_layernorm"), "self_attention.linear_qkv");
  const auto heads_of = [&](std::int64_t first,
                            std::int64_t count) {  // repeated, so that there is one for each
    return qkv.narrow(2, first, count * size)
        .view({x.size(0), x.size(1), count, size})
        .repeat_interleave(heads / count, 2)
        .transpose(1, 2);
  };
  const at::Tensor q = heads_of(0, heads), k = heads_of(HIDDEN, groups),
                   v = heads_of(HIDDEN + groups * size, groups);
  at::Tensor scores = at::matmul(q, k.transpose(2, 3)) / std::sqrt(static_cast<double>(size));
  if (config.is_causal)
    scores = scores.masked_fill(at::ones({x.size(1), x.size(1)}, at::kBool).triu(1), -INFINITY);
  const at::Tensor mixed = at::matmul(scores.softmax(-1), v).transpose(1, 2).reshape(x.sizes());
  const at::Tensor attended = x + linear(mixed, "self_attention.linear_proj");
  const at::Tensor inner = linear(norm(attended, "pre_mlp_layernorm"), "mlp.linear_fc1");
  return attended + linear(at::gelu(inner, "tanh"), "mlp.linear_fc2");
}

void compare(TransformerConfig config, const ProcessGroup& group) {
  config.hidden_size = HIDDEN;
  ParallelTransformerLayer layer(config, group);
  layer->to(at::kDouble);
  const Parameters whole = whole_parameters(*layer);
  const at::Tensor x = random_values({BATCH, SEQUENCE, HIDDEN}, 1).set_requires_grad(true);
  const at::Tensor slope = random_values(x.sizes(), 2);
  const at::Tensor expected = reference(whole, config, x);
  (expected * slope).sum().backward();

  const auto ordered = [&](const at::Tensor& of) { return config.batch_first ? of : of.transpose(0, 1); };
  const at::Tensor own = x.detach().clone().set_requires_grad(true);
  at::Tensor y = ordered(own);
  if (config.sequence_parallel) y = scatter_to_sequence_parallel_region(y, group);
  y = layer(y);
  if (config.sequence_parallel) y = gather_from_sequence_parallel_region(y, group, false);
  expect_near(y, ordered(expected), 1e-12, "output");
  (y * ordered(slope)).sum().backward();
  expect_near(own.grad(), x.grad(), 1e-12, "gradient of the input");
  std::map<std::string, Partition> partitions;
  for (const ParameterPiece& piece : named_pieces(*layer)) partitions[piece.name] = piece.partition;
  EXPECT_EQ(partitions.size(), 6);
  for (const auto& entry : layer->named_parameters()) {
    const at::Tensor& gradient = whole.at(entry.key()).grad();
    const auto part = partitions.find(entry.key());
    expect_near(entry.value().grad(), part == partitions.end() ? gradient : piece_of(gradient, part->second),
                1e-11, entry.key().c_str());
  }
}

RANKS_TEST(ParallelTransformerLayer, IsOneLayer, Ranks(1, 2, 4), Backends("shm", "tcp")) {
  torch::set_num_threads(1);
  compare({.num_attention_heads = 8}, world());
  compare({.num_attention_heads = 8, .num_query_groups = 4, .is_causal = false}, world());
  compare({.num_attention_heads = 4, .ffn_hidden_size = 48, .batch_first = false}, world());
  compare({.num_attention_heads = 8, .batch_first = false, .sequence_parallel = true}, world());
}

// Three ranks share out six heads, and a batch of three in place of a sequence.
RANKS_TEST(ParallelTransformerLayer, OfThreeRanks, Ranks(3)) {
  torch::set_num_threads(1);
  const TransformerConfig config{.hidden_size = 48, .num_attention_heads = 6, .num_query_groups = 3};
  torch::manual_seed(1);
  ParallelTransformerLayer layer(config, world());
  torch::manual_seed(1);
  TransformerConfig parts = config;
  parts.sequence_parallel = true;
  ParallelTransformerLayer in_parts(parts, world());
  const at::Tensor x = random_values({3, 8, 48}, 1, at::kFloat);
  expect_near(in_parts(x.narrow(0, rank(), 1)), layer(x).narrow(0, rank(), 1), 1e-5, "a sample of each rank");
}

// Dropout: whole activations are equal on all ranks, which the sums of later layers need; and computing a
// layer again in backward draws the same.
RANKS_TEST(ParallelTransformerLayer, DropsAlikeAndRepeatsIt, Ranks(1, 2)) {
  torch::set_num_threads(1);
  for (const bool sequence_parallel : {false, true}) {
    const TransformerConfig config{.hidden_size = HIDDEN,
                                   .num_attention_heads = 4,
                                   .attention_dropout = 0.2,
                                   .hidden_dropout = 0.2,
                                   .sequence_parallel = sequence_parallel};
    model_parallel_manual_seed(4, world());
    ParallelTransformerLayer layer(config, world());
    const at::Tensor x = random_values({2, 5, HIDDEN}, 1, at::kFloat).set_requires_grad(true);
    std::vector<at::Tensor> outputs, gradients;
    for (const bool again : {false, true}) {
      model_parallel_manual_seed(9, world());
      const at::Tensor y = again ? checkpoint(layer, x) : layer(x);
      outputs.push_back(y.detach());
      y.square().sum().backward();
      gradients.push_back(x.grad().clone());
      x.mutable_grad().zero_();
    }
    EXPECT_TRUE(outputs[1].equal(outputs[0]));
    EXPECT_TRUE(gradients[1].equal(gradients[0]));
    EXPECT_FALSE(outputs[0].equal(layer(x)));
    layer->eval();
    EXPECT_TRUE(layer(x).equal(layer(x)));
    if (sequence_parallel) continue;
    const at::Tensor summed = reduce_from_tensor_model_parallel_region(outputs[0], world());
    EXPECT_TRUE(summed.equal(outputs[0] * size()));  // exact for one and two ranks
  }
}

RANKS_TEST(ParallelTransformerLayer, RefusesHeadsThatCannotBeSharedOut, Ranks(2)) {
  const auto refuses = [&](const TransformerConfig& config, const std::string& why) {
    EXPECT_THAT([&] { ParallelTransformerLayer(config, world()); },
                ThrowsMessage<InvalidArgument>(HasSubstr(why)));
  };
  refuses({.hidden_size = 30, .num_attention_heads = 4},
          "num_attention_heads is 4, which does not divide hidden_size 30");
  refuses({.hidden_size = 30, .num_attention_heads = 3},
          "num_attention_heads is 3, which 2 ranks do not divide");
  refuses({.hidden_size = 32, .num_attention_heads = 4, .num_query_groups = 3},
          "num_query_groups is 3, which does not divide num_attention_heads 4");
  refuses({.hidden_size = 32, .num_attention_heads = 4, .num_query_groups = 1},
          "num_query_groups is 1, which 2 ranks do not divide");
  refuses({.hidden_size = 32, .num_attention_heads = 4, .ffn_hidden_size = 33}, "out_features is 33");
  ParallelSelfAttention attention(TransformerConfig{.hidden_size = 32, .num_attention_heads = 4}, world());
  EXPECT_THAT(
      [&] {
        attention(at::ones({4, 32}));
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("expected [batch, sequence, 32]")));
}

}  // namespace
}  // namespace transformer_layers
}  // namespace lockstep::tensor_parallel
