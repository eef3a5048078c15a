// The last step of ZB_V's table (pipeline_schedule.h): a backward stays whole unless splitting it pays.
//
//   const PipelineSchedule schedule = with_joined_backwards(split_schedule(shape));    // pipeline_schedule()
//
// Why         The second half of a split backward reads inputs and gradients once more, when they have left
//             the caches: 2 to 4 % of a GPT-like stack's step where every backward is split. Splitting pays
//             where another rank waits for the gradient, at the beginning and the end of a step.
// How         Each pair of halves is made a BACKWARD in the place of the first one, if the step takes no
//             longer for it, neither with messages that take no time nor with messages that take a tenth of
//             a part's forward. Many pairs are tried together, and halves of them where that is too many.
// Order       A pair stays split where joining it would overtake an earlier micro-batch of its chunk: a
//             parameter's gradients are added in the order of before.
// Keeps       no more than before: the memory of a micro-batch is free where its gradients of inputs were.
// Large       tables are looked at for a while only (MOST_LOOKS); what was not looked at stays split.
#pragma once

#include "lockstep/schedules/pipeline_schedule.h"

namespace lockstep {

PipelineSchedule with_joined_backwards(PipelineSchedule schedule);

// pipeline_schedule() before that. Its makespan is the same, so balance_pipeline() compares cuts by it.
PipelineSchedule split_schedule(const PipelineShape& shape);

}  // namespace lockstep
