// Trains a small GPT-2 on the bytes of a text, or fine-tunes one of Hugging Face's, with any number of
// processes; then lets it write.
//
//   scripts/download tinyshakespeare
//   build/lockstep run -n 2 build/examples/gpt2 --steps 1000
//   build/lockstep run -n 2 build/examples/gpt2 --model gpt2 --data train.bin --block-size 256 --lr 3e-5
//
// The second line takes a folder as from_pretrained() of Python's transformers does, and tokens of its
// vocabulary as uint16, as nanoGPT's prepare.py writes them. Its sample is numbers, for
// tokenizer.decode([...]) in Python.
#include <ATen/CPUGeneratorImpl.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <string>

#include "examples/checkpoints.h"
#include "examples/text.h"
#include "lockstep/lockstep.h"

namespace dist = lockstep;
namespace models = lockstep::models;

namespace {

struct Options {
  std::string data = LOCKSTEP_SOURCE_DIR "/data/tinyshakespeare/input.txt", model, prompt = "\n", save;
  std::int64_t layers = 4, heads = 4, width = 128, block_size = 128, batch_size = 16, steps = 500,
               sample = 200;
  double lr = 1e-3, dropout = 0.1, temperature = 0.8;
  std::uint64_t seed = 0;
  bool recompute = false;
  CheckpointOptions checkpoints;
};

Options parse(int argc, char** argv) {
  Options o;
  CLI::App app("Trains GPT-2 with every process of the job.", "gpt2");
  app.option_defaults()->always_capture_default();
  app.add_option("--data", o.data, "a text; or a .bin file of tokens")->check(CLI::ExistingFile);
  app.add_option("--model", o.model, "folder of a GPT-2 to fine-tune")->check(CLI::ExistingDirectory);
  app.add_option("--layers", o.layers, "of a new model")->check(CLI::PositiveNumber);
  app.add_option("--heads", o.heads, "of each of its layers")->check(CLI::PositiveNumber);
  app.add_option("--width", o.width, "of its residual stream")->check(CLI::PositiveNumber);
  app.add_option("--dropout", o.dropout, "of a new model")->check(CLI::Range(0.0, 1.0));
  app.add_option("--block-size", o.block_size, "tokens in a sequence")->check(CLI::PositiveNumber);
  app.add_option("--batch-size", o.batch_size, "sequences per process and step")->check(CLI::PositiveNumber);
  app.add_option("--steps", o.steps, "of the optimiser")->check(CLI::PositiveNumber);
  app.add_option("--lr", o.lr, "the highest learning rate")->check(CLI::PositiveNumber);
  app.add_option("--seed", o.seed, "of weights, order, dropout and sample");
  app.add_flag("--recompute", o.recompute, "compute each block's activations again in backward: less memory");
  app.add_option("--prompt", o.prompt, "the beginning of the sample");
  app.add_option("--sample", o.sample, "tokens to write in the end")->check(CLI::NonNegativeNumber);
  app.add_option("--temperature", o.temperature, "of the sample")->check(CLI::PositiveNumber);
  app.add_option("--save", o.save, "folder for the model, as Hugging Face reads it");
  add_checkpoint_options(app, o.checkpoints);
  parse_options(app, argc, argv);
  return o;
}

models::GPT2 make_model(const Options& o, std::int64_t vocab_size) {
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

void train(const Options& o, models::GPT2& net, const auto& data) {
  dist::DistributedDataParallel ddp(net);  // averages the gradients while backward runs
  dist::optim::AdamW optimizer(ddp.parameters(), dist::optim::AdamWOptions(o.lr).betas({0.9, 0.95}));
  dist::optim::LRScheduler scheduler(optimizer, dist::optim::schedule::warmup_cosine(
                                                    std::min<std::int64_t>(100, o.steps / 10), o.steps, 0.1));
  dist::DistributedSampler sampler(data.size(), {.seed = o.seed});
  auto loader = dist::make_data_loader(data, sampler, {.batch_size = o.batch_size, .workers = 1});
  dist::set_seed(o.seed + 1, dist::get_rank());  // from here on each rank has its own dropout

  int epoch = 0;
  double loss = 0;
  Checkpoints checkpoints(o.checkpoints);
  checkpoints.state.add("model", net).add("optimizer", optimizer).add("scheduler", scheduler);
  checkpoints.state.add("sampler", sampler).add_value("epoch", epoch).add_value("loss", loss);
  checkpoints.resume();
  for (; checkpoints.step() < o.steps; ++epoch) {
    sampler.set_epoch(epoch);
    for (auto& batch : loader) {
      optimizer.zero_grad();
      const at::Tensor batch_loss = models::next_token_loss(ddp->forward(batch.data), batch.target);
      batch_loss.backward();
      dist::clip_grad_norm_(ddp.parameters(), 1.0);
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

void run(const Options& o) {
  dist::init_process_group();
  const bool are_tokens = o.data.ends_with(".bin");
  auto net = make_model(o, are_tokens ? models::GPT2Config().vocab_size : 256);
  if (are_tokens) {
    train(o, net,
          dist::TokenDataset(o.data, {.block_size = o.block_size, .vocab_size = net->config().vocab_size}));
  } else {
    train(o, net, Text(o.data, o.block_size));
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
  const Options options = parse(argc, argv);
  return exit_code_of([&] { run(options); });
}
