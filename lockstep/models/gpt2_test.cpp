#include "lockstep/models/gpt2.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>
#include <torch/utils.h>

#include <cmath>
#include <map>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/models/gpt2_files.h"
#include "lockstep/tensor/state_dict.h"
#include "testing/paths.h"
#include "testing/python.h"
#include "testing/temp_folder.h"

namespace lockstep::models {
namespace {

using testing::run_python;
using testing::TempFolder;

// Small, without dropout.
GPT2Config little() {
  return {.vocab_size = 61,
          .n_positions = 17,
          .n_embd = 24,
          .n_layer = 3,
          .n_head = 4,
          .embd_pdrop = 0,
          .attn_pdrop = 0,
          .resid_pdrop = 0};
}

std::vector<GPT2Config> configs() {
  GPT2Config untied = little();
  untied.n_layer = 2;
  untied.n_inner = 40;
  untied.n_head = 3;
  untied.layer_norm_epsilon = 1e-3;
  untied.tie_word_embeddings = false;
  GPT2Config one = little();
  one.n_layer = one.n_head = 1;
  return {little(), untied, one};
}

at::Tensor some_tokens(std::int64_t n, std::int64_t t, std::int64_t vocab_size = 61) {
  return (at::arange(n * t) * 7 + 3).remainder(vocab_size).view({n, t});
}

double difference(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

// What Python computes by the formulas of testing/gpt2.py, for each of configs().
void write_expected(const std::string& folder) {
  std::string script = str("import sys; sys.path.insert(0, '", testing::source_folder(), R"(/testing')
import torch, gpt2
from safetensors.torch import save_file
torch.set_num_threads(1); torch.set_default_dtype(torch.float64); torch.manual_seed(2)
def write(index, layers, heads, inner, epsilon, tied):
    state = gpt2.random_state(61, 17, 24, layers, inner, tied)
    tokens, targets = torch.randint(61, (2, 3, 17))
    targets[0, :5] = targets[2, 3] = -100
    for value in state.values(): value.requires_grad_()
    logits = gpt2.logits(state, tokens, layers, heads, epsilon)
    loss = gpt2.loss(logits, targets, -100)
    loss.backward()
    save_file(state, f"{sys.argv[1]}/{index}.safetensors")
    save_file({"tokens": tokens, "targets": targets, "logits": logits.detach(), "loss": loss.detach(),
               **{"grad." + name: value.grad for name, value in state.items()}}, f"{sys.argv[1]}/{index}.record.safetensors")
)");
  const std::vector<GPT2Config> all = configs();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const GPT2Config& c = all[i];
    script += str("write(", i, ", ", c.n_layer, ", ", c.n_head, ", ", c.inner_size(), ", ",
                  c.layer_norm_epsilon, ", ", c.tie_word_embeddings ? "True" : "False", ")\n");
  }
  run_python(script, {folder});
}

// Logits, loss, and the gradient of every parameter: of a tied weight it is that of both uses.
TEST(GPT2, EqualsTheFormulasInPython) {
  const TempFolder folder;
  write_expected(folder.path());
  for (std::size_t i = 0; i < configs().size(); ++i) {
    SCOPED_TRACE(i);
    GPT2 net(configs()[i]);
    net->to(at::kDouble);
    load_gpt2(*net, folder / str(i, ".safetensors"));
    const NamedTensors record = load_tensors(folder / str(i, ".record.safetensors"));
    const std::map<std::string, at::Tensor> file(record.begin(), record.end());
    const at::Tensor logits = net->forward(file.at("tokens"));
    EXPECT_EQ(logits.sizes(), (std::vector<std::int64_t>{3, 17, 61}));
    EXPECT_LE(difference(logits, file.at("logits")), 1e-10);
    EXPECT_LE(difference(net->forward(file.at("tokens").to(at::kInt)), file.at("logits")), 1e-10);
    const at::Tensor loss = next_token_loss(logits, file.at("targets"));
    EXPECT_LE(difference(loss, file.at("loss")), 1e-10);
    loss.backward();
    EXPECT_EQ(net->parameters().size() + 4, record.size());
    for (const auto& [name, parameter] : state_dict(*net))
      EXPECT_LE(difference(parameter.grad(), file.at("grad." + name)), 1e-10) << name;
  }
}

TEST(GPT2, HasHuggingFacesNamesAndTheConfigsNumberOfParameters) {
  for (const GPT2Config& config : configs()) {
    const GPT2 net(config);
    std::int64_t count = 0;
    std::set<std::string> names;
    for (const auto& [name, tensor] : state_dict(*net)) {
      count += tensor.numel();
      names.insert(name);
    }
    EXPECT_EQ(count, config.parameter_count());
    EXPECT_EQ(names.size(), static_cast<std::size_t>(4 + 12 * config.n_layer + !config.tie_word_embeddings));
    EXPECT_EQ(names.contains("lm_head.weight"), !config.tie_word_embeddings);
    for (const char* name :
         {"transformer.wte.weight", "transformer.wpe.weight", "transformer.h.0.ln_1.weight",
          "transformer.h.0.attn.c_attn.bias", "transformer.h.0.attn.c_proj.weight",
          "transformer.h.0.ln_2.bias", "transformer.h.0.mlp.c_fc.weight", "transformer.h.0.mlp.c_proj.bias",
          "transformer.ln_f.weight"})
      EXPECT_THAT(names, ::testing::Contains(name));
    EXPECT_TRUE(net->buffers().empty());
  }
}

TEST(GPT2, StartsWithTheDocumentedDistribution) {
  const GPT2Config config = {.vocab_size = 512, .n_positions = 128, .n_embd = 128, .n_layer = 8, .n_head = 2};
  torch::manual_seed(4);
  const GPT2 net(config);
  for (const auto& [name, tensor] : state_dict(*net)) {
    const bool is_norm = name.find(".ln_") != std::string::npos;
    if (name.ends_with(".bias") || is_norm) {
      EXPECT_TRUE(at::all(tensor == (name.ends_with(".bias") ? 0 : 1)).item<bool>()) << name;
      continue;
    }
    const double expected = name.ends_with("c_proj.weight") ? 0.02 / std::sqrt(16.0) : 0.02;
    const auto n = static_cast<double>(tensor.numel());
    // Five standard deviations of the estimates from n normal numbers.
    EXPECT_NEAR(tensor.std().item<double>(), expected, 5 * expected / std::sqrt(2 * n)) << name;
    EXPECT_NEAR(tensor.mean().item<double>(), 0, 5 * expected / std::sqrt(n)) << name;
  }
  torch::manual_seed(4);
  const GPT2 again(config);
  const auto weights = net->parameters(), same = again->parameters();
  for (std::size_t i = 0; i < weights.size(); ++i) EXPECT_TRUE(at::equal(weights[i], same[i]));
}

// Everything that a probability of 1 leaves out is left out, in training alone.
TEST(GPT2, DropsOutInTrainingAlone) {
  const at::Tensor tokens = some_tokens(2, 9);
  const auto forward = [&](const auto& change, bool training, const at::Tensor& input) {
    GPT2Config config = little();
    config.initializer_range = 0.3;
    change(config);
    torch::manual_seed(6);
    GPT2 net(config);
    net->train(training);
    return std::pair(net->forward(input), net);
  };
  const auto nothing = [](GPT2Config&) {};
  const auto plain = forward(nothing, true, tokens).first;
  const auto embd = [](GPT2Config& c) { c.embd_pdrop = 1; };
  const auto attn = [](GPT2Config& c) { c.attn_pdrop = 1; };
  const auto resid = [](GPT2Config& c) { c.resid_pdrop = 1; };
  EXPECT_TRUE(at::equal(forward(embd, false, tokens).first, plain));
  EXPECT_TRUE(at::equal(forward(attn, false, tokens).first, plain));
  EXPECT_TRUE(at::equal(forward(resid, false, tokens).first, plain));

  // Without embeddings all places are alike; without attention a place depends on its own token alone;
  // without what the blocks add, the embeddings are all there is.
  const at::Tensor blind = forward(embd, true, tokens).first;
  EXPECT_LE(difference(blind, blind[0][0].expand_as(blind)), 1e-6);
  at::Tensor changed = tokens.clone();
  changed.slice(1, 0, 8) = 5;
  EXPECT_LE(difference(forward(attn, true, tokens).first.select(1, 8),
                       forward(attn, true, changed).first.select(1, 8)),
            1e-6);
  EXPECT_GT(difference(plain.select(1, 8), forward(nothing, true, changed).first.select(1, 8)), 1e-3);
  const auto [bare, net] = forward(resid, true, tokens);
  const at::Tensor embedded =
      net->transformer->wte->weight.index({tokens}) + net->transformer->wpe->weight.slice(0, 0, 9);
  EXPECT_LE(difference(bare, at::matmul(at::layer_norm(embedded, {24}), net->transformer->wte->weight.t())),
            1e-5);
}

TEST(GPT2, ATiedWeightStaysOneTensor) {
  GPT2 net(little());
  net->to(at::kDouble);
  const at::Tensor tokens = some_tokens(1, 4);
  next_token_loss(net->forward(tokens), tokens).backward();
  std::set<const void*> places;
  for (const at::Tensor& parameter : net->parameters())
    EXPECT_TRUE(places.insert(parameter.unsafeGetTensorImpl()).second);
  const at::Tensor before = net->forward(tokens);
  const at::NoGradGuard no_grad;
  net->transformer->wte->weight.mul_(2);  // both the input and the output change
  const at::Tensor hidden = net->transformer->forward(tokens);
  EXPECT_LE(difference(net->forward(tokens), at::matmul(hidden, net->transformer->wte->weight.t())), 1e-12);
  EXPECT_GT(difference(net->forward(tokens), before), 1e-3);
}

// Each block once, in order, and the same result, whatever runs it.
TEST(GPT2, BlocksAreRunByWhatIsSet) {
  GPT2 net(little());
  const at::Tensor tokens = some_tokens(2, 5);
  const at::Tensor plain = net->forward(tokens);
  std::vector<const void*> run;
  net->transformer->run_block = [&](GPT2Block block, const at::Tensor& x) {
    run.push_back(block.get());
    return block->forward(x);
  };
  EXPECT_TRUE(at::equal(net->forward(tokens), plain));
  std::vector<const void*> blocks;
  for (const auto& block : *net->transformer->h) blocks.push_back(block.get());
  EXPECT_EQ(run, blocks);
}

TEST(GPT2, LearnsABatchByHeart) {
  torch::manual_seed(8);
  GPT2 net(GPT2Config{
      .vocab_size = 16, .n_positions = 12, .n_embd = 32, .n_layer = 2, .n_head = 2, .resid_pdrop = 0});
  const at::Tensor tokens = at::randint(16, {4, 12}, at::kLong);
  tokens.select(1, 0).copy_(at::arange(4));  // tells the rows apart
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(5e-3));
  const auto loss_of = [&] {
    return next_token_loss(net->forward(tokens).slice(1, 0, -1), tokens.slice(1, 1));
  };
  EXPECT_NEAR(loss_of().item<double>(), std::log(16.0), 0.2);
  for (int i = 0; i < 150; ++i) {
    optimizer.zero_grad();
    loss_of().backward();
    optimizer.step();
  }
  net->eval();
  EXPECT_LT(loss_of().item<double>(), 0.05);
  EXPECT_TRUE(at::equal(net->generate(tokens.slice(1, 0, 1), {.max_new_tokens = 11}), tokens));
}

// Greedy generation by hand: the whole sequence, or its last n_positions, through forward each time.
TEST(GPT2, GeneratesWithoutDropoutAndKeepsItsModes) {
  GPT2Config config = little();
  config.n_positions = 6;
  config.initializer_range = 0.5;
  config.embd_pdrop = config.resid_pdrop = 0.5;
  GPT2 net(config);
  net->eval();
  at::Tensor expected = some_tokens(2, 3);
  for (int i = 0; i < 7; ++i) {
    const at::Tensor window = expected.slice(1, std::max<std::int64_t>(0, expected.size(1) - 6));
    expected = at::cat({expected, net->forward(window).select(1, window.size(1) - 1).argmax(1, true)}, 1);
  }
  net->train();
  net->transformer->h[1]->eval();  // a block that is frozen
  EXPECT_TRUE(at::equal(net->generate(some_tokens(2, 3), {.max_new_tokens = 7}), expected));
  EXPECT_TRUE(at::equal(net->generate(some_tokens(2, 3), {.max_new_tokens = 7, .context = 100}), expected));
  EXPECT_TRUE(net->is_training());
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(net->transformer->h[i]->is_training(), i != 1);
    EXPECT_EQ(net->transformer->h->ptr<GPT2BlockImpl>(i)->mlp->dropout->is_training(), i != 1);
  }
  EXPECT_THROW(net->generate(some_tokens(2, 3), {.context = -1}), InvalidArgument);
  EXPECT_TRUE(net->is_training());
}

TEST(GPT2, TheLossIsInFloat32AndIgnoresWhatItIsTold) {
  const at::Tensor logits = at::randn({2, 5, 7});
  const at::Tensor targets = some_tokens(2, 5, 7);
  at::Tensor ignoring = targets.clone();
  ignoring[1] = 3;
  ignoring[0] = targets[0].masked_fill(targets[0] == 3, 2);
  const at::Tensor first_row = next_token_loss(logits.slice(0, 0, 1), ignoring.slice(0, 0, 1));
  EXPECT_LE(difference(next_token_loss(logits, ignoring, 3), first_row), 1e-6);
  const at::Tensor half = next_token_loss(logits.to(at::kBFloat16), targets);
  EXPECT_EQ(half.scalar_type(), at::kFloat);
  EXPECT_LE(difference(half, next_token_loss(logits.to(at::kBFloat16).to(at::kFloat), targets)), 1e-6);
  EXPECT_TRUE(std::isnan(next_token_loss(logits, at::full({2, 5}, -100, at::kLong)).item<double>()));
  EXPECT_THROW(next_token_loss(logits, targets.slice(1, 1)), InvalidArgument);
  EXPECT_THROW(next_token_loss(logits.flatten(), targets), InvalidArgument);
}

TEST(GPT2, RefusesWhatItCannotCompute) {
  EXPECT_THROW(GPT2(GPT2Config{.n_embd = 10, .n_head = 3}), InvalidArgument);
  EXPECT_THROW(GPT2Model(GPT2Config{.n_embd = 10, .n_head = 3}), InvalidArgument);
  GPT2 net(little());
  EXPECT_THROW(net->forward(some_tokens(1, 18)), InvalidArgument);
  EXPECT_THROW(net->forward(some_tokens(1, 4).flatten()), InvalidArgument);
  EXPECT_THROW(net->forward(some_tokens(1, 4).slice(1, 0, 0)), InvalidArgument);
  EXPECT_THROW(net->forward(some_tokens(1, 4).to(at::kFloat)), InvalidArgument);
}

}  // namespace
}  // namespace lockstep::models
