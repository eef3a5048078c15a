// The orders of ZB_H1 and ZB_V (pipeline_schedule.h): a row of actions for each rank.
//
//   const std::vector<PipelineActions> ranks = zero_bubble_v(shape);   // shape.kind is ZB_V
//
// First part  sends no gradient on, so its backward is whole: nobody waits for half of it.
// ZB_V        For F = I = W, equal parts and 2 p - 1 micro-batches or more the order is written down: every
//             rank waits for (p - 1) F / 2 and keeps at most 2 p chunks. Otherwise the fastest of that order
//             and of the eight of simulated_v.h is taken, by shape.work. These keep at most 2 p parts of mean
//             size, or 3 p where sizes differ.
// Recompute   takes the written order always: it keeps few gradients of parameters waiting.
#pragma once

#include <vector>

#include "lockstep/schedules/pipeline_schedule.h"

namespace lockstep {

std::vector<PipelineActions> zero_bubble_h1(const PipelineShape& shape);
std::vector<PipelineActions> zero_bubble_v(const PipelineShape& shape);

}  // namespace lockstep
