// report_step: the end of a pipeline's step, at which all ranks learn the losses, or that a part failed.
//
//   const std::vector<double> losses = report_step(group, failure, mine, /*last_rank=*/1);
//
// Collective  on the group: one all_gather; a second one, of texts, if a rank failed.
// Failures    Of several, the one of the earliest action counts, by the schedule's timeline: a later one may
//             be its consequence. Then by rank.
// Throws      if any rank failed: on a rank that failed its own exception, on all others StageFailed.
#pragma once

#include <exception>
#include <optional>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/schedules/pipeline_schedule.h"

namespace lockstep {

struct PartFailure {
  std::exception_ptr error;
  std::optional<PipelineAction> action;  // none: before the first one
  int part = 0;
  double time = -1;  // at which the action begins in the schedule's timeline
};

// `losses`: by micro-batch; every rank passes as many, and those of `last_rank` are returned.
std::vector<double> report_step(const ProcessGroup& group, const std::optional<PartFailure>& failure,
                                const std::vector<double>& losses, int last_rank);

}  // namespace lockstep
