#include "cli/plan/pipeline_question.h"

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/plan/chosen.h"
#include "lockstep/schedules/micro_batches.h"
#include "lockstep/schedules/pipeline_balance.h"
#include "lockstep/schedules/pipeline_chart.h"

namespace lockstep::cli {
namespace {

constexpr std::int64_t MOST_ACTIONS = 1'000'000;
constexpr std::int64_t MOST_LAYERS = 1'000, MOST_PARTS = 32;

constexpr std::array SCHEDULES =
    std::to_array<Word<PipelineScheduleKind>>({{"gpipe", PipelineScheduleKind::GPIPE},
                                               {"1f1b", PipelineScheduleKind::ONE_F_ONE_B},
                                               {"zb-h1", PipelineScheduleKind::ZB_H1},
                                               {"zb-v", PipelineScheduleKind::ZB_V}});
constexpr std::array RECOMPUTE_MODES =
    std::to_array<Word<RecomputeMode>>({{"never", RecomputeMode::NEVER},
                                        {"except_last", RecomputeMode::EXCEPT_LAST},
                                        {"always", RecomputeMode::ALWAYS}});

// A number of at least `least`; `what` says what it is: "times".
double parse_real(std::string_view option, std::string_view what, const std::string& text, double least) {
  double number = 0;
  std::istringstream in(text);
  in >> number;
  if (in.fail() || !in.eof() || !std::isfinite(number) || number < least)
    throw UsageError(str(option, " takes ", what, " such as 1 or 2.5, in any unit, not ", in_quotes(text)));
  return number;
}

// "F,B,W": forward, gradient of the inputs, gradient of the weights.
PipelineTimes parse_times(const std::string& text) {
  PipelineTimes times;
  if (text.empty()) return times;
  std::vector<double> all;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');)
    all.push_back(parse_real("--times", "times", word, all.empty() ? 1e-9 : 0));
  if (all.size() != 3) {
    throw UsageError(
        str("--times takes three times, F,B,W: forward, gradient of the inputs, gradient of the "
            "weights; not ",
            in_quotes(text)));
  }
  times.forward = all[0];
  times.backward_input = all[1];
  times.backward_weight = all[2];
  return times;
}

// "1,2,2,3": the sizes of the model's parts.
std::vector<double> parse_parts(const std::string& text) {
  std::vector<double> sizes;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');)
    sizes.push_back(parse_real("--parts", "sizes", word, 0));
  return sizes;
}

// Says what the parts cost: as given, or cut for the schedule from equal layers.
void add_work(const PipelineWords& words, PipelineQuestion& question) {
  PipelineShape& shape = question.shape;
  shape.work = {.forward = question.times.forward,
                .backward_input = question.times.backward_input,
                .backward_weight = question.times.backward_weight};
  if (words.layers && !words.parts.empty())
    throw UsageError("lockstep plan takes --layers, which cuts the model, or --parts, which says the cut");
  if (!words.parts.empty()) shape.work.part_sizes = parse_parts(words.parts);
  if (!words.layers) return;
  if (shape.parts() > MOST_PARTS || *words.layers > MOST_LAYERS)
    throw UsageError(str("--layers cuts up to ", MOST_LAYERS, " layers into up to ", MOST_PARTS,
                         " parts, not ", *words.layers, " into ", shape.parts()));
  const std::vector<double> costs(static_cast<std::size_t>(*words.layers), 1);
  shape.work = balance_pipeline(shape, costs).work;
}

std::string joined(const std::vector<std::int64_t>& numbers) {
  std::string text;
  for (const std::int64_t number : numbers) text += str(text.empty() ? "" : ", ", number);
  return text;
}

std::string times_text(const PipelineQuestion& question) {
  const PipelineTimes& times = question.times;
  std::string text = str("forward ", times.forward, ", backward ", times.backward_input, " + ",
                         times.backward_weight, " (inputs + weights), transfer ", times.transfer, '\n');
  if (!question.rows.empty())
    text += str("micro-batches of ", joined(question.rows), " rows; times are those of the first\n");
  return text;
}

std::string legend(const PipelineShape& shape) {
  const bool is_split = shape.kind == PipelineScheduleKind::ZB_H1 || shape.kind == PipelineScheduleKind::ZB_V;
  return str("F forward, ", "B backward", is_split ? ", I gradient of the inputs, W of the weights" : "",
             shape.recompute == RecomputeMode::NEVER ? "" : ", R recompute",
             "; the number is the micro-batch",
             shape.virtual_stages > 1 ? ", the letter the rank's model chunk" : "", '\n');
}

std::string peaks_text(const PipelineShape& shape) {
  const std::string unit =
      shape.virtual_stages > 1 ? str(", of one chunk each (", shape.virtual_stages, " chunks a rank)") : "";
  return str("in flight: most micro-batches between forward and backward, their inputs are kept", unit,
             "\nactivations: most micro-batches whose activations are kept", unit, '\n',
             shape.work.part_sizes.empty() ? "" : "size: the most of these, in parts of mean size\n");
}

}  // namespace

PipelineQuestion pipeline_question(const PipelineWords& words) {
  PipelineQuestion question;
  PipelineShape& shape = question.shape;
  shape.kind = chosen("--pipeline", words.pipeline, SCHEDULES).value;
  if (!words.recompute.empty())
    shape.recompute = chosen("--recompute", words.recompute, RECOMPUTE_MODES).value;
  if (!words.stages || !words.micro_batches)
    throw UsageError("lockstep plan --pipeline needs --stages and --micro-batches");
  const std::int64_t chunks = words.virtual_stages.value_or(shape.kind == PipelineScheduleKind::ZB_V ? 2 : 1);
  if (*words.stages > MOST_ACTIONS || *words.micro_batches > MOST_ACTIONS || chunks > MOST_ACTIONS ||
      *words.stages * *words.micro_batches > MOST_ACTIONS ||
      *words.stages * *words.micro_batches * chunks > MOST_ACTIONS) {
    throw UsageError(str("--stages times --micro-batches times --virtual is more than ", MOST_ACTIONS));
  }
  question.times = parse_times(words.times);
  if (!words.transfer.empty()) question.times.transfer = parse_real("--transfer", "times", words.transfer, 0);
  shape.stages = static_cast<int>(*words.stages);
  shape.micro_batches = static_cast<int>(*words.micro_batches);
  shape.virtual_stages = static_cast<int>(chunks);
  if (words.batch) {
    question.rows = micro_batch_sizes(*words.batch, *words.micro_batches);
    shape.micro_batches = static_cast<int>(question.rows.size());
    for (const std::int64_t rows : question.rows)
      question.times.sizes.push_back(static_cast<double>(rows) / static_cast<double>(question.rows.front()));
  }
  add_work(words, question);
  return question;
}

std::string pipeline_text(const PipelineQuestion& question) {
  const PipelineTimeline timeline = pipeline_timeline(pipeline_schedule(question.shape), question.times);
  const std::string chart = to_text(timeline);
  return str(to_text(question.shape), '\n', times_text(question), legend(question.shape), '\n',
             chart.empty() ? "The chart is too wide for text; --svg FILE draws it.\n" : chart, '\n',
             cost_text(timeline), peaks_text(question.shape));
}

std::string pipeline_json(const PipelineQuestion& question) {
  const PipelineTimeline timeline = pipeline_timeline(pipeline_schedule(question.shape), question.times);
  const PipelineShape& shape = question.shape;
  nlohmann::ordered_json json = {
      {"schedule", name_of(shape.kind)},       {"stages", shape.stages},
      {"micro_batches", shape.micro_batches},  {"virtual_stages", shape.virtual_stages},
      {"recompute", name_of(shape.recompute)}, {"part_sizes", shape.work.part_sizes},
      {"time", timeline.makespan()},           {"bubble", timeline.bubble()}};
  for (const RankTimeline& rank : timeline.ranks) {
    auto& row = json["ranks"].emplace_back();
    row = {{"idle", timeline.makespan() - rank.work},
           {"peak_in_flight", rank.peak_in_flight},
           {"peak_activations", rank.peak_activations},
           {"peak_size", rank.peak_size}};
    for (const auto& [action, start, end] : rank.actions)
      row["actions"].push_back(
          {{"action", label_of(action, shape.virtual_stages > 1)}, {"start", start}, {"end", end}});
  }
  return json.dump(2) + '\n';
}

}  // namespace lockstep::cli
