// The page of a report: one HTML text that contains everything, without scripts, for light and dark screens.
// Pure.
#pragma once

#include <string>

#include "cli/report/inputs.h"

namespace lockstep::cli {

std::string report_page(const ReportInputs& inputs);

}  // namespace lockstep::cli
