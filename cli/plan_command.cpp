// lockstep plan: the bytes of a training on each rank, the groups of its ranks, and the schedule of its
// pipeline, before it is started.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/parse.h"
#include "cli/plan/chosen.h"
#include "cli/plan/mesh_question.h"
#include "cli/plan/model_file.h"
#include "cli/plan/pipeline_picture.h"
#include "cli/plan/pipeline_question.h"
#include "cli/plan/plan.h"
#include "cli/plan/plan_texts.h"
#include "cli/plan/sizes.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/launch/prepare.h"
#include "lockstep/os/atomic_file.h"

namespace lockstep::cli {
namespace {

constexpr std::int64_t MOST_RANKS = 1 << 24;
constexpr std::int64_t MOST = std::int64_t{1} << 40;  // limit of everything that is counted
constexpr std::int64_t MOST_MESH_RANKS = 1 << 16;

struct PlanOptions {
  std::string params, model;
  std::optional<std::int64_t> ranks, nodes, ranks_per_node;
  std::string precision = "bf16", optimizer = "adamw";
  std::string stage, form, memory, live, buffers;
  std::optional<std::int64_t> layers, hidden, heads, sequence, micro_batch, vocabulary;
  std::string recompute;
  std::string mesh, order;
  PipelineWords pipeline;
  std::string svg;
  bool json = false;
};

constexpr std::array STAGES = std::to_array<Word<ZeroStage>>({{"ddp", ZeroStage::DDP},
                                                              {"0", ZeroStage::DDP},
                                                              {"1", ZeroStage::ONE},
                                                              {"2", ZeroStage::TWO},
                                                              {"3", ZeroStage::THREE}});
constexpr std::array FORMS =
    std::to_array<Word<StateForm>>({{"private", StateForm::PRIVATE}, {"shared", StateForm::SHARED}});
constexpr std::array RECOMPUTES = std::to_array<Word<Recompute>>(
    {{"none", Recompute::NONE}, {"selective", Recompute::SELECTIVE}, {"full", Recompute::FULL}});

constexpr const char* MODEL_OPTIONS = "Model";
constexpr const char* JOB_OPTIONS = "Job";
constexpr const char* TRANSFORMER_OPTIONS = "Activations of a transformer";
constexpr const char* MESH_OPTIONS = "Groups of ranks";
constexpr const char* PIPELINE_OPTIONS = "Schedule of a pipeline";

void add_word(CLI::App& app, const char* group, const char* name, std::string& value, const char* type,
              const char* text) {
  app.add_option(name, value, text)->type_name(type)->group(group);
}

void add_number(CLI::App& app, const char* group, const char* name, std::optional<std::int64_t>& value,
                std::int64_t most, const char* text) {
  auto range = CLI::Range(std::int64_t{1}, most);
  app.add_option(name, value, text)->type_name("COUNT")->group(group)->check(range.description(""));
}

void describe_model(CLI::App& app, PlanOptions& options) {
  add_word(app, MODEL_OPTIONS, "--params", options.params, "COUNT", "parameters: 124M, 7.5B, 1T");
  add_word(app, MODEL_OPTIONS, "--model", options.model, "FILE",
           "or their file: .safetensors, or the .index.json of several");
  add_word(app, MODEL_OPTIONS, "--precision", options.precision, "NAME",
           "bf16 (default) or fp16, with masters of float32; fp32");
  add_word(app, MODEL_OPTIONS, "--optimizer", options.optimizer, "NAME",
           "adamw (default), adam, lamb, lars, momentum or sgd");
  add_word(app, MODEL_OPTIONS, "--live", options.live, "COUNT",
           "parameters of the largest layer, which stage 3 gathers; default: that of the --model");
}

void describe_job(CLI::App& app, PlanOptions& options) {
  add_number(app, JOB_OPTIONS, "--ranks", options.ranks, MOST_RANKS, "ranks of the job");
  add_number(app, JOB_OPTIONS, "--nodes", options.nodes, MOST_RANKS, "machines, default 1");
  add_number(app, JOB_OPTIONS, "--ranks-per-node", options.ranks_per_node, MOST_RANKS, "ranks of each");
  add_word(app, JOB_OPTIONS, "--stage", options.stage, "STAGE", "only this: ddp, 1, 2 or 3");
  add_word(app, JOB_OPTIONS, "--form", options.form, "FORM", "only this: private or shared");
  add_word(app, JOB_OPTIONS, "--memory", options.memory, "BYTES",
           "what a rank has: says which stage fits it; exit code 1 if none does");
  add_word(app, JOB_OPTIONS, "--buffers", options.buffers, "BYTES",
           "what else a rank needs, as buckets and libraries; added to every row");
  app.add_flag("--json", options.json, "one JSON object, sizes in bytes")->group(JOB_OPTIONS);
}

void describe_transformer(CLI::App& app, PlanOptions& options) {
  const auto add = [&](const char* name, std::optional<std::int64_t>& value, const char* text) {
    add_number(app, TRANSFORMER_OPTIONS, name, value, MOST, text);
  };
  add("--layers", options.layers, "layers; of a pipeline: cuts them so that its step is shortest");
  add("--hidden", options.hidden, "hidden size");
  add("--heads", options.heads, "attention heads");
  add("--sequence", options.sequence, "tokens of a sequence");
  add("--micro-batch", options.micro_batch, "sequences of a forward and backward, default 1");
  add("--vocabulary", options.vocabulary, "tokens that there are: counts embedding and logits, too");
  add_word(app, TRANSFORMER_OPTIONS, "--recompute", options.recompute, "WHAT",
           "none (default), selective (attention) or full (all but inputs); of a pipeline: never (default), "
           "except_last or always");
}

void describe_mesh(CLI::App& app, PlanOptions& options) {
  add_word(app, MESH_OPTIONS, "--mesh", options.mesh, "AXES",
           "tp=2,pp=4: prints the groups of --ranks along each axis; also cp, dp (default: what is left) and "
           "vpp");
  add_word(app, MESH_OPTIONS, "--order", options.order, "AXES",
           "axes from consecutive ranks to distant ones, default tp-cp-ep-dp-pp");
}

void describe_pipeline(CLI::App& app, PlanOptions& options) {
  PipelineWords& words = options.pipeline;
  const auto count = [&](const char* name, std::optional<std::int64_t>& value, const char* text) {
    add_number(app, PIPELINE_OPTIONS, name, value, MOST, text);
  };
  const auto word = [&](const char* name, std::string& value, const char* type, const char* text) {
    add_word(app, PIPELINE_OPTIONS, name, value, type, text);
  };
  word("--pipeline", words.pipeline, "NAME", "draws a schedule: gpipe, 1f1b, zb-h1 or zb-v");
  count("--stages", words.stages, "ranks of the pipeline");
  count("--micro-batches", words.micro_batches, "micro-batches of a step");
  count("--virtual", words.virtual_stages, "model chunks of each rank, default 1: interleaved 1f1b");
  word("--parts", words.parts, "A,B,...", "sizes of the model's parts, in any unit; default: all are equal");
  word("--times", words.times, "F,B,W",
       "times of forward, gradient of inputs and of weights, for all chunks of a rank; default 1,1,1");
  word("--transfer", words.transfer, "TIME", "time of a message, default 0");
  count("--batch", words.batch, "rows of the batch that is cut into micro-batches; default: all are equal");
  word("--svg", options.svg, "FILE", "also draws a picture");
}

void describe_plan(CLI::App& app, PlanOptions& options) {
  app.footer(
      "Forms: private, each rank has memory of its own, as the ZeRO paper's table 1 and DeepSpeed reckon;\n"
      "shared, the ranks of a machine have one copy of parameters and optimizer state in shared memory, as\n"
      "Lockstep's ShardedDataParallel, and a rank is charged its part of it.\n"
      "GB are 10^9 bytes, GiB 2^30. docs/plan.md has the formulas, docs/pipeline_schedules.md the "
      "schedules.");
  describe_model(app, options);
  describe_job(app, options);
  describe_transformer(app, options);
  describe_mesh(app, options);
  describe_pipeline(app, options);
}

void take_model(const PlanOptions& options, PlanQuestion& question) {
  if (options.params.empty() == options.model.empty())
    throw UsageError("lockstep plan needs --params or --model, and not both");
  if (!options.params.empty()) {
    question.states.parameters = parse_count("--params", options.params);
  } else {
    const ModelSize size = read_model_size(options.model);
    question.states.parameters = static_cast<double>(size.parameters);
    question.states.live = static_cast<double>(size.largest);
    question.largest_layer = size.largest_layer;
  }
  if (!options.live.empty()) {
    question.states.live = parse_count("--live", options.live);
    question.largest_layer.clear();
    if (question.states.live > question.states.parameters)
      throw UsageError("--live is the largest layer's part of the parameters, and cannot be more than all");
  }
}

void take_ranks(const PlanOptions& options, StateSetting& states) {
  if (!options.ranks && !options.ranks_per_node)
    throw UsageError("lockstep plan needs --ranks, or --nodes and --ranks-per-node");
  if (options.ranks_per_node) {
    states.ranks_per_node = *options.ranks_per_node;
    states.nodes =
        options.nodes.value_or(options.ranks.value_or(*options.ranks_per_node) / states.ranks_per_node);
  } else {
    states.nodes = options.nodes.value_or(1);
    states.ranks_per_node = *options.ranks / states.nodes;
  }
  if (options.ranks && (states.ranks() != *options.ranks))
    throw UsageError(str("--ranks ", *options.ranks,
                         " is not --nodes times --ranks-per-node; every machine has "
                         "the same number of ranks"));
}

void take_transformer(const PlanOptions& options, PlanQuestion& question) {
  const std::array needed = {std::pair("--layers", &options.layers), std::pair("--hidden", &options.hidden),
                             std::pair("--heads", &options.heads),
                             std::pair("--sequence", &options.sequence)};
  std::string missing;
  std::size_t given = 0;
  for (const auto& [name, value] : needed)
    if (*value) {
      ++given;
    } else {
      missing += str(missing.empty() ? "" : ", ", name);
    }
  if (given == 0 && !options.micro_batch && !options.vocabulary && options.recompute.empty()) return;
  if (given < needed.size()) throw UsageError(str("activations of a transformer need ", missing, " too"));
  question.transformer = TransformerShape{.layers = *options.layers,
                                          .hidden = *options.hidden,
                                          .heads = *options.heads,
                                          .sequence = *options.sequence,
                                          .micro_batch = options.micro_batch.value_or(1),
                                          .vocabulary = options.vocabulary.value_or(0)};
  if (!options.recompute.empty())
    question.recompute = chosen("--recompute", options.recompute, RECOMPUTES).value;
  question.states.activations =
      activation_bytes(*question.transformer, question.recompute, question.precision.parameters);
}

PlanQuestion question_of(const PlanOptions& options) {
  PlanQuestion question;
  question.precision = chosen("--precision", options.precision, PRECISIONS);
  question.optimizer = chosen("--optimizer", options.optimizer, OPTIMIZERS);
  question.states.bytes = bytes_per_parameter(question.precision, question.optimizer);
  if (!options.stage.empty()) question.stage = chosen("--stage", options.stage, STAGES).value;
  if (!options.form.empty()) question.form = chosen("--form", options.form, FORMS).value;
  if (!options.memory.empty()) question.memory = parse_bytes("--memory", options.memory);
  if (!options.buffers.empty()) question.states.buffers = parse_bytes("--buffers", options.buffers);
  take_ranks(options, question.states);
  take_transformer(options, question);
  take_model(options, question);
  return question;
}

// What `lockstep plan` is asked for.
enum class PlanKind : std::uint8_t { BYTES, MESH, PIPELINE };

struct OptionUse {
  std::string_view name;
  bool bytes, mesh, pipeline;  // the questions that it goes with
};
// Options that are not listed go with BYTES alone.
constexpr std::array OPTION_USES = std::to_array<OptionUse>({{"--json", true, true, true},
                                                             {"--ranks", true, true, false},
                                                             {"--nodes", true, true, false},
                                                             {"--ranks-per-node", true, true, false},
                                                             {"--recompute", true, false, true},
                                                             {"--mesh", false, true, false},
                                                             {"--order", false, true, false},
                                                             {"--pipeline", false, false, true},
                                                             {"--stages", false, false, true},
                                                             {"--micro-batches", false, false, true},
                                                             {"--virtual", false, false, true},
                                                             {"--parts", false, false, true},
                                                             {"--layers", true, false, true},
                                                             {"--times", false, false, true},
                                                             {"--transfer", false, false, true},
                                                             {"--batch", false, false, true},
                                                             {"--svg", false, false, true}});

OptionUse use_of(const std::string& name) {
  for (const OptionUse& use : OPTION_USES)
    if (use.name == name) return use;
  return {name, true, false, false};
}

// UsageError for an option of another question: it would have no effect.
void refuse_other_options(const CLI::App& app, PlanKind kind) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0) continue;
    const std::string name = option->get_name();
    const OptionUse use = use_of(name);
    if (kind == PlanKind::MESH && !use.mesh) throw UsageError(str(name, " does not go with --mesh"));
    if (kind == PlanKind::PIPELINE && !use.pipeline)
      throw UsageError(str(name, " does not go with --pipeline"));
    if (kind == PlanKind::BYTES && !use.bytes)
      throw UsageError(str(name, " needs ", use.mesh ? "--mesh" : "--pipeline"));
  }
}

int plan_mesh(const CLI::App& app, const PlanOptions& options) {
  refuse_other_options(app, PlanKind::MESH);
  StateSetting states;
  take_ranks(options, states);
  if (states.ranks() > MOST_MESH_RANKS)
    throw UsageError(str("--mesh prints at most ", MOST_MESH_RANKS, " ranks, not ", states.ranks()));
  const ModelParallelMesh mesh =
      model_parallel_mesh(parse_mesh_sizes(options.mesh), static_cast<int>(states.ranks()),
                          options.order.empty() ? MEGATRON_RANK_ORDER : options.order);
  std::fputs((options.json ? mesh_json(mesh) : to_text(mesh)).c_str(), stdout);
  return EXIT_SUCCESS;
}

int plan_pipeline(const CLI::App& app, PlanOptions& options) {
  refuse_other_options(app, PlanKind::PIPELINE);
  options.pipeline.recompute = options.recompute;
  options.pipeline.layers = options.layers;
  const PipelineQuestion question = pipeline_question(options.pipeline);
  if (!options.svg.empty()) {
    const std::string picture =
        pipeline_svg(pipeline_timeline(pipeline_schedule(question.shape), question.times));
    AtomicFile file(options.svg);
    file.write(std::as_bytes(std::span(picture)));
    file.commit();
  }
  std::fputs((options.json ? pipeline_json(question) : pipeline_text(question)).c_str(), stdout);
  return EXIT_SUCCESS;
}

int plan_bytes(const CLI::App& app, const PlanOptions& options) {
  refuse_other_options(app, PlanKind::BYTES);
  const PlanQuestion question = question_of(options);
  const PlanAnswer plan = answer(question);
  std::fputs((options.json ? plan_json(question, plan) : plan_text(question, plan)).c_str(), stdout);
  return anything_fits(plan) ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace

int plan_command(const std::vector<std::string>& arguments) {
  PlanOptions options;
  CLI::App app("Before a job is started: bytes a rank, groups of ranks, pipeline schedules.",
               "lockstep plan");
  describe_plan(app, options);
  if (const auto exit_code = parse(app, arguments)) return *exit_code;
  try {
    if (!options.mesh.empty()) return plan_mesh(app, options);
    if (!options.pipeline.pipeline.empty()) return plan_pipeline(app, options);
    return plan_bytes(app, options);
  } catch (const InvalidArgument&) {  // a mistake in the command line
    throw;
  } catch (const Error& error) {  // a file is broken, missing or cannot be written
    throw ProgramError(error.what(), EXIT_FAILURE);
  }
}

}  // namespace lockstep::cli
