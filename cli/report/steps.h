// The part of a report about steps: their time by part and rank, and from step to step. Pure.
#pragma once

#include <string>
#include <vector>

#include "cli/report/profile_input.h"

namespace lockstep::cli {

std::string steps_html(const std::vector<RankProfile>& profiles);

}  // namespace lockstep::cli
