// pipeline_timeline: when each action of a pipeline schedule begins and ends if actions take given times. It
// answers what a schedule costs before anything is run: its bubble, and what each rank keeps in memory. Pure.
//
//   const PipelineSchedule schedule = pipeline_schedule({.stages = 4, .micro_batches = 8});
//   const PipelineTimeline timeline = pipeline_timeline(schedule, {.forward = 1, .backward_input = 1});
//   timeline.makespan();                         // 33: (m + p - 1) (F + B + W)
//   timeline.bubble();                           // 9 / 33: (p - 1) / (m + p - 1)
//   timeline.ranks[0].peak_in_flight;            // 4: min(p - rank, m)
//
// Times       of one micro-batch on all of a rank's model chunks, in any unit. A chunk's action takes the
//             v-th part, times the size of the chunk's part of the model (shape.work). A BACKWARD takes
//             backward_input + backward_weight, a RECOMPUTE as long as the forward. `sizes` multiplies the
//             times of each micro-batch; empty: all are 1.
// Measured    Where each action was measured by itself, its time is given by rank and by its place in the
//             rank's row of the table. Values arrive at once then.
// Begin       An action begins when its rank has finished the one before, and its input has arrived. The
//             input arrives `transfer` after the end of the action that computed it on another rank. No rank
//             is busy meanwhile. A RECOMPUTE needs no gradient, so it begins before the gradient arrives.
// Bubble      the part of all ranks' time in which they compute nothing: idle over total, as in the GPipe
//             paper. Megatron's papers divide the same idle time by the work instead.
// Peaks       of each rank, in micro-batches of one chunk. They follow from the order alone, not from times.
//             peak_in_flight: from FORWARD to the end of the backward, of both its halves; their inputs are
//             kept. peak_activations: those whose activations are kept, which begins at RECOMPUTE if there is
//             one. peak_size: the same, where a chunk counts as its part's size, in parts of mean size.
// Throws      InvalidArgument: a time that is negative or not finite; a forward of 0; sizes for another
//             number of micro-batches; measured times for another number of actions; a table of the caller's
//             own in which a rank waits forever, or which has micro-batches or chunks that the shape has not.
#pragma once

#include <vector>

#include "lockstep/base/visibility.h"
#include "lockstep/schedules/pipeline_schedule.h"

namespace LOCKSTEP_PUBLIC lockstep {

struct PipelineTimes {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
  double transfer = 0;
  std::vector<double> sizes;  // by micro-batch
};

struct TimedAction {
  PipelineAction action;
  double start = 0;
  double end = 0;
};

struct RankTimeline {
  std::vector<TimedAction> actions;
  double work = 0;  // sum of their times
  int peak_in_flight = 0;
  int peak_activations = 0;
  double peak_size = 0;
};

struct PipelineTimeline {
  PipelineShape shape;
  std::vector<RankTimeline> ranks;

  double makespan() const;  // the end of the last action
  double bubble() const;    // 0 to 1
};

PipelineTimeline pipeline_timeline(const PipelineSchedule& schedule, const PipelineTimes& times);
// With the times of schedule.shape.work.
PipelineTimeline pipeline_timeline(const PipelineSchedule& schedule);
// With the measured time of each action, by rank and place.
PipelineTimeline pipeline_timeline(const PipelineSchedule& schedule,
                                   const std::vector<std::vector<double>>& measured);

// No schedule of this shape has a shorter makespan, with the times of shape.work: every rank waits for the
// first micro-batch's way to its first part, and computes all its parts.
double least_makespan(const PipelineShape& shape);

}  // namespace lockstep
