// The shapes that the tests of pipeline schedules go through: all schedules of 1 to 8 stages, 1 to 3 p
// micro-batches and, for 1F1B, 1 to 4 chunks. And the shapes whose order is computed from what the model
// costs.
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

// ZB_V of 1 to 6 stages: unequal and empty parts, halves of a backward that differ or take nothing.
inline std::vector<PipelineShape> computed_pipeline_shapes() {
  std::vector<PipelineShape> shapes;
  for (int p = 1; p <= 6; ++p) {
    std::vector<double> rising, first_empty(static_cast<std::size_t>(2 * p), 1);
    for (int part = 0; part < 2 * p; ++part) rising.push_back(1 + part);
    first_empty.front() = 0;
    for (const std::vector<double>& sizes : {std::vector<double>(), rising, first_empty})
      for (const double input : {1.0, 1.5, 0.0})
        for (int m = 1; m <= 3 * p; ++m)
          shapes.push_back(
              {.kind = PipelineScheduleKind::ZB_V,
               .stages = p,
               .micro_batches = m,
               .virtual_stages = 2,
               .work = {.part_sizes = sizes, .backward_input = input, .backward_weight = 2 - input}});
  }
  return shapes;
}

}  // namespace lockstep
