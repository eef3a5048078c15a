#include "lockstep/parallel/context_parallel/ring_attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/utils.h>

#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "testing/ranks.h"
#include "testing/tensor_near.h"
#include "testing/tensors.h"

// Against attention over the whole sequence, written out, in one process.
namespace lockstep::context_parallel {
namespace ring_attentions {
namespace {

using testing::expect_near;
using ::testing::HasSubstr;
using testing::random_values;
using ::testing::ThrowsMessage;

constexpr std::int64_t BATCH = 2, SIZE = 8;

at::Tensor reference(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool is_causal,
                     double scale) {
  const std::int64_t times = q.size(1) / k.size(1);
  at::Tensor scores = at::matmul(q, k.repeat_interleave(times, 1).transpose(2, 3)) * scale;
  if (is_causal) scores = scores.masked_fill(at::ones({q.size(2), q.size(2)}, at::kBool).triu(1), -INFINITY);
  return at::matmul(scores.softmax(-1), v.repeat_interleave(times, 1));
}

struct Setting {
  bool is_causal = false;
  std::int64_t key_heads = 4;
  std::int64_t chunk = 3;  // places
  at::ScalarType type = at::kDouble;
  double tolerance = 1e-12;
  std::optional<double> scale = {};
};

void compare(const Setting& setting, const ProcessGroup& group) {
  const std::int64_t length = 2 * setting.chunk * group.size();
  const auto leaf = [&](std::int64_t heads, std::uint64_t seed) {
    return random_values({BATCH, heads, length, SIZE}, seed, setting.type).set_requires_grad(true);
  };
  const at::Tensor q = leaf(4, 1), k = leaf(setting.key_heads, 2), v = leaf(setting.key_heads, 3);
  const at::Tensor slope = random_values(q.sizes(), 4, setting.type);
  const at::Tensor expected =
      reference(q, k, v, setting.is_causal, setting.scale.value_or(1 / std::sqrt(static_cast<double>(SIZE))));
  (expected * slope).sum().backward();

  std::vector<at::Tensor> own;
  for (const at::Tensor* whole : {&q, &k, &v})
    own.push_back(sequence_part(whole->detach(), 2, group).set_requires_grad(true));
  const at::Tensor y =
      ring_attention(own[0], own[1], own[2], group, {.is_causal = setting.is_causal, .scale = setting.scale});
  EXPECT_EQ(y.scalar_type(), setting.type);
  expect_near(y, sequence_part(expected, 2, group), setting.tolerance, "output");
  expect_near(sequence_whole(y, 2, group), expected, setting.tolerance, "whole output");
  (y * sequence_part(slope, 2, group)).sum().backward();
  const char* const names[] = {"gradient of the queries", "gradient of the keys", "gradient of the values"};
  for (std::size_t i = 0; const at::Tensor* whole : {&q, &k, &v}) {
    expect_near(own[i].grad(), sequence_part(whole->grad(), 2, group), setting.tolerance, names[i]);
    ++i;
  }
}

RANKS_TEST(RingAttention, IsTheAttentionOfTheWhole, Ranks(1, 2, 3, 4), Backends("shm", "tcp")) {
  torch::set_num_threads(1);
  for (const bool is_causal : {false, true}) {
    compare({.is_causal = is_causal}, world());
    compare({.is_causal = is_causal, .key_heads = 2, .chunk = 1}, world());
    compare({.is_causal = is_causal, .key_heads = 1, .chunk = 17, .scale = 0.5}, world());
    compare({.is_causal = is_causal, .type = at::kFloat, .tolerance = 1e-5}, world());
  }
}

// The parts together are the whole, each place once.
RANKS_TEST(RingAttention, PartsAreChunksOfTheSequence, Ranks(1, 2, 3, 4)) {
  const at::Tensor whole = at::arange(4 * size(), at::kLong).view({1, 4 * size()});
  const at::Tensor part = sequence_part(whole, 1, world());
  const std::int64_t early = 2 * rank(), late = 2 * (2 * size() - 1 - rank());
  EXPECT_TRUE(part.equal(
      at::tensor(std::vector<std::int64_t>{early, early + 1, late, late + 1}, at::kLong).view({1, 4})));
  EXPECT_TRUE(sequence_whole(part, 1, world()).equal(whole));
}

RANKS_TEST(RingAttention, RefusesWhatDoesNotGoTogether, Ranks(1, 2)) {
  const auto refuses = [&](at::IntArrayRef query, at::IntArrayRef key, const std::string& why) {
    EXPECT_THAT([&] { ring_attention(at::ones(query), at::ones(key), at::ones(key), world()); },
                ThrowsMessage<InvalidArgument>(HasSubstr(why)));
  };
  refuses({2, 4, 6}, {2, 4, 6}, "expected [batch, heads, sequence, size]");
  refuses({2, 4, 6, 8}, {2, 4, 4, 8}, "batch, sequence and size are the same");
  refuses({2, 4, 6, 8}, {2, 3, 6, 8}, "the heads of the keys divide");
  refuses({2, 4, 5, 8}, {2, 4, 5, 8}, "has 5 places, and is two chunks");
  EXPECT_THAT([&] { sequence_part(at::ones({2 * size() + 1}), 0, world()); },
              ThrowsMessage<InvalidArgument>(HasSubstr(str(2 * size(), " chunks do not divide"))));
  const at::Tensor x = at::ones({1, 1, 2, 8}).set_requires_grad(true);
  const at::Tensor y = ring_attention(x, x, x, world());
  EXPECT_THAT([&] { torch::autograd::grad({y.sum()}, {x}, {}, true, /*create_graph=*/true); },
              ThrowsMessage<InvalidArgument>(HasSubstr("create_graph")));
}

}  // namespace
}  // namespace ring_attentions
}  // namespace lockstep::context_parallel
