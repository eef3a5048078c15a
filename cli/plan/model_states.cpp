#include "cli/plan/model_states.h"

namespace lockstep::cli {
namespace {

constexpr std::int64_t MOST_UNITS = std::int64_t{1} << 40;  // limit of the search for ranks or machines

// The same setting on other ranks. PRIVATE memory does not depend on which ranks share the machine.
StateSetting on_units(StateSetting setting, StateForm form, std::int64_t units) {
  setting.nodes = units;
  if (form == StateForm::PRIVATE) setting.ranks_per_node = 1;
  return setting;
}

// Bytes of a rank for the layer that is computed, besides its share.
double live_bytes(const StateSetting& setting, StateForm form, ZeroStage stage) {
  if (setting.ranks() == 1 || stage < ZeroStage::TWO) return 0;
  const double gradients = setting.bytes.gradients * setting.live;
  if (stage == ZeroStage::TWO) return gradients;
  const double whole = setting.bytes.parameters * setting.live;
  if (form == StateForm::PRIVATE) return whole + gradients;
  // On a single machine, the one copy is complete already. On several machines each gathers the layer once.
  return setting.nodes == 1 ? gradients : whole / static_cast<double>(setting.ranks_per_node) + gradients;
}

}  // namespace

StateBytes bytes_per_parameter(const StatePrecision& precision, const StateOptimizer& optimizer) {
  return {precision.parameters, precision.gradients, precision.masters + 4 * optimizer.moments};
}

std::string_view name_of(ZeroStage stage) {
  switch (stage) {
    case ZeroStage::DDP: return "ddp";
    case ZeroStage::ONE: return "stage 1";
    case ZeroStage::TWO: return "stage 2";
    case ZeroStage::THREE: return "stage 3";
  }
  return "";
}

StateRow state_row(const StateSetting& setting, StateForm form, ZeroStage stage) {
  const auto ranks = static_cast<double>(setting.ranks());
  const bool is_shared = form == StateForm::SHARED && stage != ZeroStage::DDP;
  const double parameter_copies = is_shared ? static_cast<double>(setting.ranks_per_node) : 1;
  StateRow row{.form = form, .stage = stage, .buffers = setting.buffers, .activations = setting.activations};
  row.parameters =
      setting.parameters * setting.bytes.parameters / (stage == ZeroStage::THREE ? ranks : parameter_copies);
  row.gradients = setting.parameters * setting.bytes.gradients / (stage >= ZeroStage::TWO ? ranks : 1);
  row.optimizer = setting.parameters * setting.bytes.optimizer / (stage >= ZeroStage::ONE ? ranks : 1);
  row.live = live_bytes(setting, form, stage);
  return row;
}

std::optional<std::int64_t> ranks_that_fit(const StateSetting& setting, StateForm form, ZeroStage stage,
                                           double memory) {
  const auto fits = [&](std::int64_t units) {
    return state_row(on_units(setting, form, units), form, stage).total() <= memory;
  };
  // From two ranks on, more ranks never take more.
  std::int64_t too_few = form == StateForm::PRIVATE ? setting.ranks() : setting.nodes;
  std::int64_t enough = too_few + 1;
  while (!fits(enough)) {
    if (enough > MOST_UNITS) return std::nullopt;
    too_few = enough;
    enough *= 2;
  }
  while (enough - too_few > 1) {
    const std::int64_t middle = too_few + (enough - too_few) / 2;
    (fits(middle) ? enough : too_few) = middle;
  }
  return on_units(setting, form, enough).ranks();
}

}  // namespace lockstep::cli
