// balance_pipeline: how many layers each part of a pipeline gets, so that a step takes the shortest time by
// the schedule's own table. Pure.
//
//   const PipelineShape shape = {
//       .kind = PipelineScheduleKind::ZB_V, .stages = 2, .micro_batches = 4, .virtual_stages = 2};
//   const PipelineBalance balance = balance_pipeline(shape, std::vector<double>(8, 1.0));
//   balance.layers;                                                 // {1, 2, 2, 3}
//   PipelineShape cut = shape;
//   cut.work = balance.work;
//   pipeline_timeline(pipeline_schedule(cut)).makespan();           // 12.25; parts of two layers take 12.5
//
// A cut whose largest part is smallest (balance_costs() of parallel/pipeline/balance.h) is best where each
// rank has one part. A rank with several parts needs no more than an even sum of them, and what its first
// part takes keeps the next rank waiting.
//
// Costs       of each layer, in any unit: its forward and backward together. shape.work says how these are
//             divided; its part_sizes do not count.
// Search      Up to 5,000 cuts are all tried; of those with the shortest step the parts most alike are
//             taken. With more, runs of neighbouring cuts move by a layer, from like parts on, as long as
//             that is better; this may miss the shortest. A step is timed with at most 4 p micro-batches, or
//             16, behind which the schedules repeat themselves. The result is not slower than like parts.
//             32 parts take seconds, 64 minutes.
// Memory      does not count: parts of different sizes with ZB_V keep up to half as much again
//             (pipeline_schedule.h). The peak_size of the timeline says how much.
// Throws      InvalidArgument: fewer layers than parts; a cost that is negative or not finite, or all 0; what
//             pipeline_schedule() refuses.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/base/visibility.h"
#include "lockstep/schedules/pipeline_schedule.h"

namespace LOCKSTEP_PUBLIC lockstep {

struct PipelineBalance {
  std::vector<std::int64_t> layers;  // of each part of the model, at least one
  PipelineWork work;                 // of these parts, for PipelineShape and PipelineOptions
};

PipelineBalance balance_pipeline(const PipelineShape& shape, const std::vector<double>& costs);

}  // namespace lockstep
