#include "lockstep/parallel/zero/unit_plan.h"

#include "lockstep/base/round_up.h"
#include "lockstep/os/reserved_memory.h"

namespace lockstep {

UnitPlan unit_plan(std::span<const std::size_t> parameter_bytes, std::size_t unit_bytes, std::size_t begin) {
  constexpr std::size_t ALIGNMENT = 64;
  UnitPlan plan{.units = {}, .begins = {}, .bytes = round_up(begin, ReservedMemory::PAGE)};
  std::size_t in_unit = 0;
  for (std::size_t i = 0; i < parameter_bytes.size(); ++i) {
    if (plan.units.empty() || in_unit >= unit_bytes) {
      plan.bytes = round_up(plan.bytes, ReservedMemory::PAGE);
      plan.units.push_back({.first = i, .count = 0, .begin = plan.bytes, .end = 0});
      in_unit = 0;
    }
    plan.begins.push_back(plan.bytes);
    plan.bytes = round_up(plan.bytes + parameter_bytes[i], ALIGNMENT);
    in_unit += parameter_bytes[i];
    ++plan.units.back().count;
    plan.units.back().end = round_up(plan.bytes, ReservedMemory::PAGE);
  }
  plan.bytes = round_up(plan.bytes, ReservedMemory::PAGE);
  return plan;
}

}  // namespace lockstep
