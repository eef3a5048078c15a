// The options of examples/13_gpt2.cpp.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "examples/checkpoints.h"
#include "examples/command_line.h"

struct Gpt2Options {
  std::string data = LOCKSTEP_SOURCE_DIR "/data/tinyshakespeare/input.txt", model, prompt = "\n", save;
  std::int64_t layers = 4, heads = 4, width = 128, block_size = 128, batch_size = 16, steps = 500,
               sample = 200;
  double lr = 1e-3, dropout = 0.1, temperature = 0.8;
  std::uint64_t seed = 0;
  bool recompute = false, zero = false;
  CheckpointOptions checkpoints;
};

inline Gpt2Options parse_gpt2_options(int argc, char** argv) {
  Gpt2Options o;
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
  app.add_flag("--zero", o.zero, "each rank steps its part of the model: less memory, the same numbers");
  app.add_option("--prompt", o.prompt, "the beginning of the sample");
  app.add_option("--sample", o.sample, "tokens to write in the end")->check(CLI::NonNegativeNumber);
  app.add_option("--temperature", o.temperature, "of the sample")->check(CLI::PositiveNumber);
  app.add_option("--save", o.save, "folder for the model, as Hugging Face reads it");
  add_checkpoint_options(app, o.checkpoints);
  parse_options(app, argc, argv);
  return o;
}
