#include "lockstep/parallel/tensor_parallel/vocab_parallel_embedding.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/embedding.h>
#include <torch/utils.h>

#include <vector>

#include "lockstep/base/error.h"
#include "testing/ranks.h"
#include "testing/tensor_near.h"
#include "testing/tensors.h"

// Against torch::nn::Embedding in one process.
namespace lockstep::tensor_parallel {
namespace vocab_embedding {
namespace {

using testing::expect_near;
using ::testing::HasSubstr;
using testing::random_values;
using ::testing::ThrowsMessage;

constexpr std::int64_t WIDTH = 5;

struct Pair {
  torch::nn::Embedding whole{nullptr};
  VocabParallelEmbedding own{nullptr};

  Pair(std::int64_t vocabulary, const ProcessGroup& group,
       const VocabParallelEmbeddingOptions& options = {}) {
    torch::manual_seed(3);
    whole = torch::nn::Embedding(vocabulary, WIDTH);
    torch::manual_seed(3);
    own = VocabParallelEmbedding(vocabulary, WIDTH, group, options);
  }
  void expect_parts() const {
    const Stretch rows = own->rows();
    EXPECT_TRUE(own->weight.equal(whole->weight.narrow(0, rows.begin, rows.size)));
    expect_near(own->weight.grad(), whole->weight.grad().narrow(0, rows.begin, rows.size), 1e-6, "gradient");
  }
};

// 13 rows divide by no number of ranks but one. Some rows are looked up twice, some ranks have no token.
RANKS_TEST(VocabParallelEmbedding, IsOneEmbedding, Ranks(1, 2, 3, 4), Backends("shm", "tcp")) {
  for (const std::int64_t vocabulary : {12, 13}) {
    for (const auto& tokens : {at::arange(12, at::kLong).view({4, 3}), at::full({2, 2}, 1, at::kLong)}) {
      Pair pair(vocabulary, world());
      const at::Tensor expected = pair.whole(tokens), y = pair.own(tokens);
      EXPECT_TRUE(y.equal(expected));
      const at::Tensor slope = random_values(y.sizes(), 1, at::kFloat);
      (y * slope).sum().backward();
      (expected * slope).sum().backward();
      pair.expect_parts();
      EXPECT_TRUE(pair.own(tokens.to(at::kInt)).equal(expected));
    }
  }
}

RANKS_TEST(VocabParallelEmbedding, ScattersAlongTheSequence, Ranks(1, 2, 3, 4)) {
  Pair pair(13, world(), {.reduce_scatter_embeddings = true});
  const at::Tensor tokens = (at::arange(24, at::kLong) * 5).remainder(13).view({12, 2});
  const std::int64_t part = 12 / size();
  const at::Tensor expected = pair.whole(tokens), y = pair.own(tokens);
  EXPECT_TRUE(y.equal(expected.narrow(0, rank() * part, part)));
  const at::Tensor slope = random_values(expected.sizes(), 1, at::kFloat);
  (y * slope.narrow(0, rank() * part, part)).sum().backward();
  (expected * slope).sum().backward();
  pair.expect_parts();
}

RANKS_TEST(VocabParallelEmbedding, RefusesTokensThatNobodyHas, Ranks(1, 2, 3)) {
  const auto refuses = [&](const auto& call, const std::string& why) {
    EXPECT_THAT(call, ThrowsMessage<InvalidArgument>(HasSubstr(why)));
  };
  VocabParallelEmbedding own(7, WIDTH, world());
  refuses(
      [&] {
        own(at::tensor(std::vector<std::int64_t>{0, 7}, at::kLong));
      },
      "token 7 is not between 0 and 6");
  refuses(
      [&] {
        own(at::tensor(std::vector<std::int64_t>{-1, 2}, at::kLong));
      },
      "token -1 is not between 0 and 6");
  refuses([&] { own(at::ones({2})); }, "tokens are Float, expected int64 or int32");
  refuses([&] { VocabParallelEmbedding(size() - 1, WIDTH, world()); }, "at least one row and column");
  EXPECT_EQ(own(at::empty({0}, at::kLong)).numel(), 0);
}

}  // namespace
}  // namespace vocab_embedding
}  // namespace lockstep::tensor_parallel
