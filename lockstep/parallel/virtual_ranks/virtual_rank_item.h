// virtual_rank_item(): what each virtual rank has for itself, in a checkpoint that any number of processes
// loads.
//
//   dist::CheckpointState state;
//   state.add("model", net).add("optimizer", optimizer).add("sampler", sampler);
//   state.add_item("virtual_ranks", dist::virtual_rank_item());
//   dist::save_checkpoint("runs/7", state, {.step = 1200});          // by 2 processes; loaded by 3
//
// Holds       random numbers, and the buffers that differ between virtual ranks (virtual_rank_states.h). It
//             takes the place of add_random_state(). A job without virtual ranks has nothing of its own
//             here.
// When        after the models have been wrapped, between loops over virtual_ranks().
// Throws      InvalidArgument: another number of virtual ranks than that of the checkpoint.
#pragma once

#include <memory>

#include "lockstep/checkpoint/checkpoint_item.h"

namespace lockstep {

std::shared_ptr<CheckpointItem> virtual_rank_item();

}  // namespace lockstep
