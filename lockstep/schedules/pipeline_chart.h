// to_text(PipelineTimeline): a pipeline's timeline as the papers draw it, and what it costs. Pure.
//
//   std::cout << to_text(pipeline_timeline(pipeline_schedule({.stages = 2, .micro_batches = 3})));
//       // rank 0  F0 F1       B0--- F2 B1---    B2---
//       // rank 1     F0 B0--- F1 B1--- F2 B2---
//
// A rank is a line, time runs to the right. The shortest action is as wide as its label; all others are drawn
// to the same scale, and a dash says that an action still lasts. Letters are those of PipelineActionKind, the
// number is the micro-batch, a small letter the model chunk.
#pragma once

#include <cstddef>
#include <string>

#include "lockstep/base/visibility.h"
#include "lockstep/schedules/pipeline_timeline.h"

namespace LOCKSTEP_PUBLIC lockstep {

// The lines alone; "" if they would have more than `widest` characters.
std::string to_text(const PipelineTimeline& timeline, std::size_t widest = 1000);

// What the ranks have in common on a line, and a table with idle time and peaks of each rank.
std::string cost_text(const PipelineTimeline& timeline);

}  // namespace lockstep
