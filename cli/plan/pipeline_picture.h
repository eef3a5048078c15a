// A pipeline's timeline as a picture: a row for each rank, a box for each action. Pure.
//
//   write("1f1b.svg", pipeline_svg(pipeline_timeline(schedule)));
#pragma once

#include <string>

#include "lockstep/schedules/pipeline_timeline.h"

namespace lockstep::cli {

// A whole SVG file. Colours are by kind of action; later chunks of a rank are paler.
std::string pipeline_svg(const PipelineTimeline& timeline);

}  // namespace lockstep::cli
