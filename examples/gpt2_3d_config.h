// The configuration of examples/22_gpt2_3d.cpp, from a JSON file as examples/gpt2_3d.json, and its options.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "examples/checkpoints.h"
#include "examples/command_line.h"
#include "lockstep/job/model_parallel.h"
#include "lockstep/models/pipeline_gpt2.h"
#include "lockstep/optim/adam.h"

struct Gpt2In3d {
  explicit Gpt2In3d(const nlohmann::json& json) {
    const auto& axes = json.at("mesh");
    mesh = {.tensor = axes.at("tensor"),
            .pipeline = axes.at("pipeline"),
            .virtual_pipeline = axes.value("virtual_pipeline", 1),
            .context = axes.value("context", 1)};
    const auto& sizes = json.at("model");
    model = {.vocab_size = 256,  // the tokens are bytes
             .n_positions = sizes.at("n_positions"),
             .n_embd = sizes.at("n_embd"),
             .n_layer = sizes.at("n_layer"),
             .n_head = sizes.at("n_head"),
             .embd_pdrop = sizes.value("dropout", 0.0),
             .attn_pdrop = mesh.context > 1 ? 0 : sizes.value("dropout", 0.0),  // the ring has none
             .resid_pdrop = sizes.value("dropout", 0.0)};
    using Kind = lockstep::PipelineScheduleKind;
    const auto& line = json.at("pipeline");
    pipeline.schedule =
        named<Kind>(line.at("schedule"), {Kind::GPIPE, Kind::ONE_F_ONE_B, Kind::ZB_H1, Kind::ZB_V});
    pipeline.micro_batches = line.at("micro_batches");
    using Mode = lockstep::RecomputeMode;
    pipeline.recompute =
        named<Mode>(line.value("recompute", "never"), {Mode::NEVER, Mode::EXCEPT_LAST, Mode::ALWAYS});
    sequence_parallel = json.value("sequence_parallel", false);
    adamw = lockstep::optim::AdamWOptions(json.at("optimizer").at("lr").get<double>());
    adamw.weight_decay(json.at("optimizer").value("weight_decay", 0.01));
    clipping = json.value("gradient_clipping", 1.0);
    bf16 = json.value("bf16", false);
    batch_size = json.at("batch_size");
    steps = json.at("steps");
    seed = json.value("seed", 1);
  }

  // What is dropped depends on the step and the place alone, so that a resumed run drops the same. The ranks
  // that hold the pieces of one layer have the same seed, all others another. A generator takes 32 bits.
  std::uint64_t dropout_seed(std::int64_t step, int rank, int ranks) const {
    const auto places = static_cast<std::uint64_t>(ranks / mesh.tensor);
    return (seed << 24) + static_cast<std::uint64_t>(step) * places +
           static_cast<std::uint64_t>(rank / mesh.tensor);
  }

  lockstep::ModelParallelSizes mesh;
  lockstep::models::GPT2Config model;
  lockstep::PipelineOptions pipeline;
  bool sequence_parallel = false, bf16 = false;
  lockstep::optim::AdamWOptions adamw;
  double clipping = 1;
  std::int64_t batch_size = 16, steps = 100;  // sequences of all copies together
  std::uint64_t seed = 1;

 private:
  template <typename Enum> static Enum named(const std::string& word, std::initializer_list<Enum> values) {
    for (const Enum value : values)
      if (name_of(value) == word) return value;
    throw std::invalid_argument("the configuration has an unknown word: " + word);
  }
};

struct Gpt2In3dOptions {
  std::string config = LOCKSTEP_SOURCE_DIR "/examples/gpt2_3d.json";
  std::string data = LOCKSTEP_SOURCE_DIR "/data/tinyshakespeare/input.txt";
  bool alone_beside = false;
  CheckpointOptions checkpoints;

  Gpt2In3d read() const {
    std::ifstream file(config);
    return Gpt2In3d(nlohmann::json::parse(file));
  }
};

inline Gpt2In3dOptions parse_3d_options(int argc, char** argv) {
  Gpt2In3dOptions o;
  CLI::App app("Trains GPT-2 in tensor, pipeline, context and data parallel.", "gpt2_3d");
  app.option_defaults()->always_capture_default();
  app.add_option("--config", o.config, "mesh, model, schedule and optimiser")->check(CLI::ExistingFile);
  app.add_option("--data", o.data, "a text")->check(CLI::ExistingFile);
  app.add_flag("--beside-plain", o.alone_beside,
               "rank 0 trains the same model alone, too, and prints both losses");
  add_checkpoint_options(app, o.checkpoints);
  parse_options(app, argc, argv);
  return o;
}
