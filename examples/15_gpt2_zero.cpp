// Fine-tunes a GPT-2 with DeepSpeed's engine and a DeepSpeed configuration as it is: ZeRO, float16 with a
// dynamic loss scale, clipping, accumulation. Then it saves a checkpoint and lets the model write.
//
//   scripts/download tinyshakespeare
//   build/lockstep deepspeed --num_gpus 2 build/examples/gpt2_zero
//       --deepspeed --deepspeed_config examples/ds_config.json --steps 200
//
// With --model FOLDER, a GPT-2 of Hugging Face's, and --data TOKENS.bin it fine-tunes that one; otherwise a
// small new one on the bytes of a text. --resume goes on from the newest checkpoint.
#include <ATen/CPUGeneratorImpl.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <deque>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "examples/command_line.h"
#include "examples/job.h"
#include "examples/text.h"
#include "lockstep/compat/deepspeed/engine.h"
#include "lockstep/data/token_dataset.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/models/gpt2_files.h"
#include "lockstep/train/mean.h"
#include "lockstep/train/reproducible.h"

namespace dist = lockstep;
namespace deepspeed = lockstep::compat::deepspeed;
namespace models = lockstep::models;

struct Options {
  std::string config = LOCKSTEP_SOURCE_DIR "/examples/ds_config.json";
  std::string data = LOCKSTEP_SOURCE_DIR "/data/tinyshakespeare/input.txt", model,
              checkpoints = "checkpoints", device = "cpu";
  std::int64_t layers = 2, heads = 2, width = 64, block_size = 64, steps = 100, sample = 100;
  bool deepspeed = false, resume = false;
};

Options parse_options(int argc, char** argv) {
  Options o;
  CLI::App app("Fine-tunes GPT-2 with DeepSpeed's engine.", "gpt2_zero");
  app.option_defaults()->always_capture_default();
  app.add_flag("--deepspeed", o.deepspeed, "as DeepSpeed's programs have it: always on");
  app.add_option("--deepspeed_config", o.config, "DeepSpeed's configuration")->check(CLI::ExistingFile);
  app.add_option("--data", o.data, "a text; or a .bin file of tokens")->check(CLI::ExistingFile);
  app.add_option("--model", o.model, "folder of a GPT-2 to fine-tune")->check(CLI::ExistingDirectory);
  app.add_option("--layers", o.layers, "of a new model")->check(CLI::PositiveNumber);
  app.add_option("--heads", o.heads, "of each of its layers")->check(CLI::PositiveNumber);
  app.add_option("--width", o.width, "of its residual stream")->check(CLI::PositiveNumber);
  app.add_option("--block-size", o.block_size, "tokens in a sequence")->check(CLI::PositiveNumber);
  app.add_option("--device", o.device, "cuda: a GPU for each process")->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--steps", o.steps, "of the optimiser")->check(CLI::PositiveNumber);
  app.add_option("--sample", o.sample, "tokens to write in the end")->check(CLI::NonNegativeNumber);
  app.add_option("--checkpoints", o.checkpoints, "folder for the checkpoint");
  app.add_flag("--resume", o.resume, "go on from the newest checkpoint there, if there is one");
  parse_options(app, argc, argv);
  return o;
}

models::GPT2 make_model(const Options& o, std::int64_t vocab_size) {
  dist::set_seed(0);
  if (!o.model.empty()) return models::gpt2_from_pretrained(o.model);
  return models::GPT2(models::GPT2Config{.vocab_size = vocab_size,
                                         .n_positions = o.block_size,
                                         .n_embd = o.width,
                                         .n_layer = o.layers,
                                         .n_head = o.heads});
}

double mean_of(const auto& losses) {
  return std::accumulate(losses.begin(), losses.end(), 0.0) / losses.size();
}

void train(const Options& o, models::GPT2& net, const auto& data) {
  auto [engine, optimizer, lr_scheduler] = deepspeed::initialize(net, deepspeed::read_config(o.config));
  auto loader = engine.deepspeed_io(data, {.num_local_io_workers = 1});
  dist::set_seed(1, dist::get_rank());  // from here on each rank has its own dropout

  int epoch = 0;
  std::vector<double> first;  // losses of the first ten steps
  std::deque<double> last;    // and of the last ten
  if (o.resume) {
    if (const auto loaded = engine.load_checkpoint(o.checkpoints)) {
      epoch = loaded->client_state["epoch"];
      first = loaded->client_state["first"].get<std::vector<double>>();
    }
  }
  dist::Mean loss_of_step;
  for (; engine.global_steps() < o.steps; ++epoch) {
    loader.set_epoch(epoch);
    for (auto& batch : loader) {
      const at::Tensor loss =
          models::next_token_loss(engine(batch.data.to(o.device)), batch.target.to(o.device));
      loss_of_step.add(loss.item<double>());
      const bool steps = engine.is_gradient_accumulation_boundary();
      engine.backward(loss);
      engine.step();
      if (!steps) continue;
      last.push_back(loss_of_step.across_ranks());
      loss_of_step = dist::Mean();
      if (first.size() < 10) first.push_back(last.back());
      if (last.size() > 10) last.pop_front();
      if (dist::get_rank() == 0 && (engine.global_steps() % 10 == 0 || !engine.was_step_applied()))
        std::printf("step %lld: loss %.4f, loss scale %.0f%s\n",
                    static_cast<long long>(engine.global_steps()), last.back(), engine.loss_scale(),
                    engine.was_step_applied() ? "" : ", skipped");
      if (engine.global_steps() == o.steps) break;
    }
  }
  engine.save_checkpoint(o.checkpoints, {.client_state = {{"epoch", epoch}, {"first", first}}});
  if (dist::get_rank() == 0) std::printf("the loss went from %.4f to %.4f\n", mean_of(first), mean_of(last));
  if (!(mean_of(last) < mean_of(first))) throw std::runtime_error("the loss did not fall");
}

void run(const Options& o) {
  deepspeed::init_distributed(o.device == "cuda" ? "nccl" : "auto");
  const bool are_tokens = o.data.ends_with(".bin");
  models::GPT2 net = make_model(o, are_tokens ? models::GPT2Config().vocab_size : 256);
  net->to(o.device);  // "cuda" is this rank's
  if (are_tokens) {
    train(o, net,
          dist::TokenDataset(o.data, {.block_size = o.block_size, .vocab_size = net->config().vocab_size}));
  } else {
    train(o, net, Text(o.data, o.block_size));
  }
  // On all ranks: at stage 3 over messages they gather the parameters that each of them reads.
  const at::Tensor prompt =
      are_tokens ? torch::full({1}, net->config().vocab_size - 1) : bytes_as_tokens("The ");
  const models::GenerateOptions options{.max_new_tokens = o.sample,
                                        .do_sample = true,
                                        .top_k = 50,
                                        .generator = at::detail::createCPUGenerator(0)};
  const at::Tensor sample = net->generate(prompt.unsqueeze(0).to(o.device), options).cpu();
  if (dist::get_rank() != 0) return;
  for (const std::int64_t token : std::span(sample.const_data_ptr<std::int64_t>(), sample.numel()))
    are_tokens ? std::printf("%lld, ", static_cast<long long>(token)) : std::putchar(static_cast<int>(token));
  std::putchar('\n');
}

int main(int argc, char** argv) {
  const Options options = parse_options(argc, argv);
  return exit_code_of([&] { run(options); });
}
