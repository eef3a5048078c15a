// The computed order of ZB_V (zero_bubble.h): ranks are simulated, and what they do is written down.
//
//   const std::vector<PipelineActions> ranks = simulated_v(shape, /*most=*/2 * shape.stages, {});
//
// How         Actions take the times of shape.work. A rank that is free takes, of what it can begin first,
//             what it prefers; gradients of parameters come last, as nobody waits for them. The first part's
//             backward is whole and counts as such a gradient.
// Memory      A rank keeps at most `most` parts of mean size between forward and gradient of parameters, or
//             its two parts if these are larger. It begins a micro-batch only if it can bring it back within
//             that, so no rank waits forever.
// Source      Qi et al., "Zero Bubble Pipeline Parallelism", 2024, arXiv 2401.10241, section 3.1, has the
//             idea; preferences and parts of different sizes are ours.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/schedules/pipeline_schedule.h"

namespace lockstep {

// What a rank takes first of two actions that it could begin.
struct VPreference {
  PipelineActionKind kind = PipelineActionKind::BACKWARD_INPUT;  // or FORWARD
  int inputs = 1;                                                // the chunk, of gradients of inputs
  int weights = 1;                                               // and of parameters
};

std::vector<PipelineActions> simulated_v(const PipelineShape& shape, double most, VPreference preference);

}  // namespace lockstep
