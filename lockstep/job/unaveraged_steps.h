// Says once, through the log sink, that a rank of a job of several takes optimiser steps while nothing was
// averaged: most often the model was not wrapped in DistributedDataParallel, so each rank trains a model of
// its own.
//
//   note_step("optim::SGD");                              // by whatever knows that an optimiser steps
//   note_shuffled_epoch(graphs_were_recorded);            // by a sampler, when a second epoch begins
//
// Seen        lockstep::optim's optimisers, GradScaler::step() and Apex's with any optimiser, from the
//             STEPS-th step on; and a second epoch over a shuffling DistributedSampler in whose first one
//             autograd recorded graphs on that thread, which also finds libtorch's own optimisers: these have
//             no place where a library could look.
// Not said    once the process has made any collective or message of the program's own (purpose.h) or a
//             DistributedDataParallel has averaged, because that may be how the program averages; metrics,
//             checksums, barriers and SyncBatchNorm do not count. Alone, and before init_process_group().
#pragma once

#include <cstdint>
#include <string_view>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

inline constexpr std::int64_t STEPS_TO_SAY = 10;

void note_step(std::string_view optimizer);
void note_shuffled_epoch(bool recorded_graphs);

}  // namespace lockstep
