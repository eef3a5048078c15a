// The shapes that the tests of pipeline schedules go through: all schedules of 1 to 8 stages, 1 to 3 p
// micro-batches and, for 1F1B, 1 to 4 chunks.
#pragma once

#include <vector>

#include "lockstep/schedules/pipeline_schedule.h"

namespace lockstep {

inline std::vector<PipelineShape> every_pipeline_shape(RecomputeMode recompute = RecomputeMode::NEVER) {
  std::vector<PipelineShape> shapes;
  for (const auto kind :
       {PipelineScheduleKind::GPIPE, PipelineScheduleKind::ONE_F_ONE_B, PipelineScheduleKind::ZB_H1})
    for (int p = 1; p <= 8; ++p)
      for (int m = 1; m <= 3 * p; ++m)
        for (int v = 1; v <= (kind == PipelineScheduleKind::ONE_F_ONE_B ? 4 : 1); ++v)
          shapes.push_back({kind, p, m, v, recompute});
  for (int p = 1; p <= 8; ++p)
    for (int m = 1; m <= 3 * p; ++m) shapes.push_back({PipelineScheduleKind::ZB_V, p, m, 2, recompute});
  return shapes;
}

}  // namespace lockstep
