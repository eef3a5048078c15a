#include "cli/plan/plan_texts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/plan/sizes.h"
#include "lockstep/base/str.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t STAGE_WIDTH = 9;
constexpr std::size_t COLUMN_WIDTH = 13;

struct PlanColumn {
  const char* name;
  double (*value)(const StateRow& row);
};

constexpr std::array COLUMNS =
    std::to_array<PlanColumn>({{"parameters", [](const StateRow& row) { return row.parameters; }},
                               {"gradients", [](const StateRow& row) { return row.gradients; }},
                               {"optimizer", [](const StateRow& row) { return row.optimizer; }},
                               {"live", [](const StateRow& row) { return row.live; }},
                               {"buffers", [](const StateRow& row) { return row.buffers; }},
                               {"activations", [](const StateRow& row) { return row.activations; }},
                               {"total", [](const StateRow& row) { return row.total(); }}});
constexpr std::size_t ALWAYS_SHOWN = 3;  // so many columns are shown even if all rows have 0

std::string_view json_name(StateForm form) { return form == StateForm::PRIVATE ? "private" : "shared"; }

std::string_view words_of(StateForm form) {
  return form == StateForm::PRIVATE ? "each rank has memory of its own (ZeRO)"
                                    : "the ranks of a machine share memory (Lockstep)";
}

std::string counted(std::int64_t count, std::string_view what) {
  return str(count, ' ', what, count == 1 ? "" : "s");
}

std::string right_aligned(std::string_view text) {
  return std::string(COLUMN_WIDTH - std::min(COLUMN_WIDTH, text.size()), ' ').append(text);
}

double machine_bytes(const PlanQuestion& question, const StateRow& row) {
  return row.total() * static_cast<double>(question.states.ranks_per_node);
}

double activations_with(const PlanQuestion& question, Recompute recompute) {
  return activation_bytes(*question.transformer, recompute, question.precision.parameters);
}

std::string setting_lines(const PlanQuestion& question) {
  const StateSetting& states = question.states;
  const std::string masters = question.precision.masters > 0 ? " with float32 masters" : "";
  std::string text =
      str(count_text(states.parameters), " parameters, ", question.precision.name, masters, ", ",
          question.optimizer.name, ": ", states.bytes.parameters, " + ", states.bytes.gradients, " + ",
          states.bytes.optimizer, " bytes of parameter, gradient and optimizer state\n");
  text += str(counted(states.ranks(), "rank"), " on ", counted(states.nodes, "machine"), '\n');
  if (states.live > 0)
    text += str("live: the largest layer, ",
                question.largest_layer.empty() ? "" : str(in_quotes(question.largest_layer), ", of "),
                count_text(states.live), " parameters\n");
  return text;
}

std::vector<PlanColumn> columns_of(const std::vector<StateRow>& rows) {
  std::vector<PlanColumn> shown;
  for (const PlanColumn& column : COLUMNS) {
    const auto is_something = [&](const StateRow& row) { return column.value(row) > 0; };
    if (shown.size() < ALWAYS_SHOWN || std::any_of(rows.begin(), rows.end(), is_something))
      shown.push_back(column);
  }
  return shown;
}

std::string row_line(const PlanQuestion& question, const std::vector<PlanColumn>& columns,
                     const StateRow& row) {
  std::string line(name_of(row.stage));
  line.resize(STAGE_WIDTH, ' ');
  for (const PlanColumn& column : columns) line += right_aligned(bytes_text(column.value(row)));
  line += right_aligned(bytes_text(machine_bytes(question, row)));
  if (question.memory) {
    const double free = *question.memory - row.total();
    line +=
        free >= 0 ? str("   fits, ", bytes_text(free), " free") : str("   ", bytes_text(-free), " too large");
  }
  return line + '\n';
}

std::string table_of(const PlanQuestion& question, const PlanAnswer& plan, StateForm form) {
  const std::vector<PlanColumn> columns = columns_of(plan.rows);
  std::string lines;
  for (const StateRow& row : plan.rows)
    if (row.form == form) lines += row_line(question, columns, row);
  if (lines.empty()) return "";
  std::string head(STAGE_WIDTH, ' ');
  for (const PlanColumn& column : columns) head += right_aligned(column.name);
  return str('\n', words_of(form), '\n', head, right_aligned("machine"), '\n', lines);
}

std::string activation_line(const PlanQuestion& question) {
  std::string list;
  for (const Recompute recompute : {Recompute::NONE, Recompute::SELECTIVE, Recompute::FULL})
    list += str(list.empty() ? "" : ", ", name_of(recompute), ' ',
                bytes_text(activations_with(question, recompute)));
  return str("\nactivations by what is recomputed: ", list, "; the table has ", name_of(question.recompute),
             '\n');
}

std::string verdict_line(const PlanQuestion& question, const PlanVerdict& verdict) {
  const std::string begin = str(bytes_text(*question.memory),
                                verdict.form == StateForm::PRIVATE ? ", own memory: " : ", shared memory: ");
  if (verdict.first) return str(begin, name_of(*verdict.first), " is the first that fits\n");
  if (verdict.ranks)
    return str(begin, "none fits; ", name_of(verdict.last), " does from ", *verdict.ranks, " ranks on\n");
  return str(begin, "none fits; nor does ", name_of(verdict.last), " on any number of ranks\n");
}

Json whole(double bytes) {
  constexpr double TOO_LARGE = 0x1p63;  // for an integer
  return bytes < TOO_LARGE ? Json(static_cast<std::uint64_t>(std::ceil(bytes))) : Json(bytes);
}

Json row_object(const PlanQuestion& question, const StateRow& row) {
  Json object = {{"form", json_name(row.form)}, {"stage", static_cast<int>(row.stage)}};
  for (const PlanColumn& column : COLUMNS) object[column.name] = whole(column.value(row));
  object["machine"] = whole(machine_bytes(question, row));
  if (question.memory) object["fits"] = row.total() <= *question.memory;
  return object;
}

Json verdict_object(const PlanVerdict& verdict) {
  Json object = {{"form", json_name(verdict.form)}};
  object["first_stage"] = verdict.first ? Json(static_cast<int>(*verdict.first)) : Json();
  if (!verdict.first) {
    object["stage"] = static_cast<int>(verdict.last);
    object["ranks"] = verdict.ranks ? Json(*verdict.ranks) : Json();
  }
  return object;
}

}  // namespace

std::string plan_text(const PlanQuestion& question, const PlanAnswer& plan) {
  std::string text = setting_lines(question);
  for (const StateForm form : {StateForm::PRIVATE, StateForm::SHARED}) text += table_of(question, plan, form);
  if (question.transformer) text += activation_line(question);
  if (!plan.verdicts.empty()) text += '\n';
  for (const PlanVerdict& verdict : plan.verdicts) text += verdict_line(question, verdict);
  return text;
}

std::string plan_json(const PlanQuestion& question, const PlanAnswer& plan) {
  const StateSetting& states = question.states;
  Json object = {{"parameters", whole(states.parameters)},
                 {"live_parameters", whole(states.live)},
                 {"ranks", states.ranks()},
                 {"nodes", states.nodes},
                 {"ranks_per_node", states.ranks_per_node},
                 {"precision", question.precision.name},
                 {"optimizer", question.optimizer.name},
                 {"bytes_per_parameter",
                  {{"parameters", states.bytes.parameters},
                   {"gradients", states.bytes.gradients},
                   {"optimizer", states.bytes.optimizer}}}};
  object["rows"] = Json::array();
  for (const StateRow& row : plan.rows) object["rows"].push_back(row_object(question, row));
  if (question.transformer) {
    object["recompute"] = name_of(question.recompute);
    for (const Recompute recompute : {Recompute::NONE, Recompute::SELECTIVE, Recompute::FULL})
      object["activations"][std::string(name_of(recompute))] = whole(activations_with(question, recompute));
  }
  if (question.memory) object["memory"] = whole(*question.memory);
  for (const PlanVerdict& verdict : plan.verdicts) object["verdicts"].push_back(verdict_object(verdict));
  return object.dump() + '\n';
}

}  // namespace lockstep::cli
