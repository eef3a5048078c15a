// The texts of `lockstep plan`. Pure.
#pragma once

#include <string>

#include "cli/plan/plan.h"

namespace lockstep::cli {

// The setting, a table for each form, the activations, and what fits.
std::string plan_text(const PlanQuestion& question, const PlanAnswer& plan);

// One object; sizes are whole bytes.
std::string plan_json(const PlanQuestion& question, const PlanAnswer& plan);

}  // namespace lockstep::cli
