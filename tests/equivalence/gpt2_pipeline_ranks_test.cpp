// GPT-2 in a pipeline against one process.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "lockstep/models/gpt2.h"
#include "lockstep/parallel/pipeline/pipeline.h"
#include "testing/ranks.h"

namespace lockstep::gpt2_pipeline_ranks_test {
namespace {

constexpr double TOLERANCE = 1e-10;

// GPT-2 by blocks over the ranks, its tied embedding on the first and the last one.
RANKS_TEST(Gpt2Pipeline, EqualsOneProcess, Ranks(1, 2, 3)) {
  const auto make = [] {
    torch::manual_seed(1);
    models::GPT2 net(models::GPT2Config{.vocab_size = 11,
                                        .n_positions = 5,
                                        .n_embd = 8,
                                        .n_layer = 6,
                                        .n_head = 2,
                                        .embd_pdrop = 0,
                                        .attn_pdrop = 0,
                                        .resid_pdrop = 0});
    net->to(at::kDouble);
    return net;
  };
  models::GPT2 whole = make(), mine = make();
  auto& body = mine->transformer;
  const bool first = rank() == 0, last = rank() + 1 == size();
  const auto count = static_cast<int>(body->h->size()) / size();
  const PipelineStage stage = [&](const at::Tensor& in) {
    at::Tensor x = first ? body->wte(in) + body->wpe(at::arange(in.size(1))) : in;
    for (int i = rank() * count; i < (rank() + 1) * count; ++i)
      x = body->h[static_cast<std::size_t>(i)]->as<models::GPT2BlockImpl>()->forward(x);
    return last ? at::linear(body->ln_f(x), body->wte->weight) : x;
  };
  const auto loss_of = [](const at::Tensor& logits, const at::Tensor& tokens) {
    return models::next_token_loss(logits, tokens);
  };
  Pipeline pipeline({stage}, loss_of, {.schedule = PipelineScheduleKind::ZB_H1, .micro_batches = 4}, world());
  pipeline.tie("wte", first || last ? body->wte->weight : at::Tensor());
  torch::manual_seed(5);
  const at::Tensor tokens = torch::randint(11, {6, 5}), next = torch::randint(11, {6, 5});
  const at::Tensor loss = loss_of(whole->forward(tokens), next);
  loss.backward();
  EXPECT_NEAR(pipeline.step(tokens, next).loss, loss.item<double>(), TOLERANCE);
  const auto expected = whole->named_parameters();
  int compared = 0;
  for (const auto& entry : mine->named_parameters()) {
    if (!entry.value().grad().defined()) continue;
    ++compared;
    EXPECT_TRUE(at::allclose(entry.value().grad(), expected[entry.key()].grad(), TOLERANCE, TOLERANCE))
        << entry.key();
  }
  EXPECT_EQ(compared, 12 * count + (first || last) + first + 2 * last);
}

}  // namespace
}  // namespace lockstep::gpt2_pipeline_ranks_test
