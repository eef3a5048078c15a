#include "lockstep/parallel/zero/unit_plan.h"

#include <algorithm>

#include "lockstep/base/round_up.h"
#include "lockstep/os/reserved_memory.h"

namespace lockstep {
namespace {

constexpr std::size_t UNIT_ALIGNMENT = 64;

std::vector<bool> residents(std::span<const UnitParameter> parameters, const UnitOptions& options) {
  std::vector<bool> stays;
  std::size_t elements = 0;
  for (const UnitParameter& parameter : parameters) {
    stays.push_back(parameter.elements <= options.persistence_threshold &&
                    parameter.elements <= options.model_persistence_threshold - elements);
    if (stays.back()) elements += parameter.elements;
  }
  return stays;
}

}  // namespace

ByteRange common_range(const UnitSpec& unit, const ByteRange& range) {
  const std::size_t begin = std::min(std::max(unit.begin, range.begin), unit.end);
  return {.begin = begin, .end = std::max(begin, std::min(unit.end, range.end))};
}

UnitPlan unit_plan(std::span<const UnitParameter> parameters, const UnitOptions& options, std::size_t begin) {
  UnitPlan plan{.units = {}, .begins = std::vector<std::size_t>(parameters.size()), .bytes = begin};
  const std::vector<bool> stays = residents(parameters, options);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!stays[i]) continue;
    plan.begins[i] = plan.bytes;
    plan.bytes = round_up(plan.bytes + parameters[i].bytes, UNIT_ALIGNMENT);
  }
  plan.bytes = plan.resident_end = round_up(plan.bytes, ReservedMemory::PAGE);
  std::size_t in_unit = options.unit_bytes;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (stays[i]) continue;
    if (plan.units.empty() || in_unit >= options.unit_bytes) {
      plan.bytes = round_up(plan.bytes, ReservedMemory::PAGE);
      plan.units.push_back({.parameters = {}, .begin = plan.bytes});
      in_unit = 0;
    }
    UnitSpec& unit = plan.units.back();
    plan.begins[i] = plan.bytes;
    plan.bytes = round_up(plan.bytes + parameters[i].bytes, UNIT_ALIGNMENT);
    in_unit += parameters[i].bytes;
    unit.parameters.push_back(i);
    unit.elements += parameters[i].elements;
    unit.end = round_up(plan.bytes, ReservedMemory::PAGE);
  }
  plan.bytes = round_up(plan.bytes, ReservedMemory::PAGE);
  return plan;
}

}  // namespace lockstep
