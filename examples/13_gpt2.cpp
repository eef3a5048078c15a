// Trains a small GPT-2 on the bytes of a text, or fine-tunes one of Hugging Face's, with any number of
// processes; then lets it write.
//
//   scripts/download tinyshakespeare
//   build/lockstep run -n 2 build/examples/gpt2 --steps 1000            # --zero: each rank steps its part
//   build/lockstep run -n 2 build/examples/gpt2 --model gpt2 --data train.bin --block-size 256 --lr 3e-5
//
// The second line takes a folder as from_pretrained() of Python's transformers does, and tokens of its
// vocabulary as uint16, as nanoGPT's prepare.py writes them. Its sample is numbers, for
// tokenizer.decode([...]) in Python.
#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <cstdio>
#include <string>

#include "examples/checkpoints.h"
#include "examples/gpt2_options.h"
#include "examples/text.h"
#include "lockstep/lockstep.h"

namespace dist = lockstep;
namespace models = lockstep::models;

namespace {

models::GPT2 make_model(const Gpt2Options& o, std::int64_t vocab_size) {
  dist::set_seed(o.seed);
  auto net = o.model.empty() ? models::GPT2(models::GPT2Config{.vocab_size = vocab_size,
                                                               .n_positions = o.block_size,
                                                               .n_embd = o.width,
                                                               .n_layer = o.layers,
                                                               .n_head = o.heads,
                                                               .embd_pdrop = o.dropout,
                                                               .attn_pdrop = o.dropout,
                                                               .resid_pdrop = o.dropout})
                             : models::gpt2_from_pretrained(o.model);
  if (o.recompute)
    net->transformer->run_block = [](models::GPT2Block block, const at::Tensor& x) {
      return dist::checkpoint(std::move(block), x);
    };
  return net;
}

dist::optim::AdamWOptions adamw(const Gpt2Options& o) {
  return dist::optim::AdamWOptions(o.lr).betas({0.9, 0.95});
}

// Every rank has the whole model; gradients are averaged while backward runs.
struct Replicas {
  Replicas(models::GPT2& whole, const Gpt2Options& o)
      : net(whole), model(whole), optimizer(model.parameters(), adamw(o)) {}
  void clip() { dist::clip_grad_norm_(model.parameters(), 1.0); }
  void add_to(dist::CheckpointState& state) { state.add("model", net).add("optimizer", optimizer); }
  models::GPT2& net;
  dist::DistributedDataParallel<models::GPT2Impl> model;
  dist::optim::AdamW optimizer;
};

// Every rank steps its part of one model.
struct Shards {
  Shards(models::GPT2& net, const Gpt2Options& o)
      : model(net), optimizer(model.optimizer<dist::optim::AdamW>(adamw(o))) {}
  void clip() { model.clip_grad_norm_(1.0); }
  void add_to(dist::CheckpointState& state) { state.add("model", model).add("optimizer", optimizer); }
  dist::ShardedDataParallel<models::GPT2Impl> model;
  dist::ShardedOptimizer<dist::optim::AdamW> optimizer;
};

template <typename Way> void train(const Gpt2Options& o, models::GPT2& net, const auto& data) {
  Way way(net, o);
  auto& optimizer = way.optimizer;
  dist::optim::LRScheduler scheduler(optimizer, dist::optim::schedule::warmup_cosine(
                                                    std::min<std::int64_t>(100, o.steps / 10), o.steps, 0.1));
  dist::DistributedSampler sampler(data.size(), {.seed = o.seed});
  auto loader = dist::make_data_loader(data, sampler, {.batch_size = o.batch_size, .workers = 1});
  dist::set_seed(o.seed + 1, dist::get_rank());  // from here on each rank has its own dropout

  int epoch = 0;
  double loss = 0;
  Checkpoints checkpoints(o.checkpoints);
  way.add_to(checkpoints.state);
  checkpoints.state.add("scheduler", scheduler).add("sampler", sampler);
  checkpoints.state.add_value("epoch", epoch).add_value("loss", loss);
  checkpoints.resume();
  for (; checkpoints.step() < o.steps; ++epoch) {
    sampler.set_epoch(epoch);
    for (auto& batch : loader) {
      optimizer.zero_grad();
      const at::Tensor batch_loss = models::next_token_loss(way.model.forward(batch.data), batch.target);
      batch_loss.backward();
      way.clip();
      optimizer.step();
      scheduler.step();
      loss = dist::mean_across_ranks(batch_loss).template item<double>();
      const std::int64_t step = checkpoints.step() + 1;
      if (dist::get_rank() == 0 && (step % 50 == 0 || step == o.steps))
        std::printf("step %lld: loss %.4f\n", static_cast<long long>(step), loss);
      checkpoints.after_step();
      if (step == o.steps) break;
    }
  }
  if (loss > std::log(static_cast<double>(net->config().vocab_size)))
    throw std::runtime_error("the loss is that of a guess, or higher");
}

void run(const Gpt2Options& o) {
  dist::init_process_group();
  const bool are_tokens = o.data.ends_with(".bin");
  auto net = make_model(o, are_tokens ? models::GPT2Config().vocab_size : 256);
  const auto train_on = [&](const auto& data) {
    o.zero ? train<Shards>(o, net, data) : train<Replicas>(o, net, data);
  };
  if (are_tokens) {
    const dist::TokenDatasetOptions options = {.block_size = o.block_size,
                                               .vocab_size = net->config().vocab_size};
    train_on(dist::TokenDataset(o.data, options));
  } else {
    train_on(Text(o.data, o.block_size));
  }
  if (dist::get_rank() != 0) return;
  // The last token of GPT-2's vocabulary stands between texts.
  const at::Tensor prompt =
      are_tokens ? torch::full({1}, net->config().vocab_size - 1) : bytes_as_tokens(o.prompt);
  const at::Tensor sample =
      net->generate(prompt.unsqueeze(0), {.max_new_tokens = o.sample,
                                          .do_sample = true,
                                          .temperature = o.temperature,
                                          .top_k = 50,
                                          .generator = at::detail::createCPUGenerator(o.seed)});
  for (const std::int64_t token : std::span(sample.const_data_ptr<std::int64_t>(), sample.numel()))
    are_tokens ? std::printf("%lld, ", static_cast<long long>(token)) : std::putchar(static_cast<int>(token));
  std::putchar('\n');
  if (!o.save.empty()) models::save_gpt2(*net, o.save);
}

}  // namespace

int main(int argc, char** argv) {
  const Gpt2Options options = parse_gpt2_options(argc, argv);
  return exit_code_of([&] { run(options); });
}
