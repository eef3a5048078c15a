// virtual_rank_item(): saves the state of each virtual rank in a checkpoint that any number of processes can
// load.
//
//   dist::CheckpointState state;
//   state.add("model", net).add("optimizer", optimizer).add("sampler", sampler);
//   state.add_item("virtual_ranks", dist::virtual_rank_item());
//   dist::save_checkpoint("runs/7", state, {.step = 1200});          // by 2 processes; loaded by 3
//
// Holds       random numbers, and the buffers that differ between virtual ranks (virtual_rank_states.h). It
//             takes the place of add_random_state(). It is empty in a job without virtual ranks.
// When        after the models have been wrapped, between loops over virtual_ranks().
// Throws      InvalidArgument: the checkpoint has another number of virtual ranks.
#pragma once

#include <memory>

#include "lockstep/checkpoint/checkpoint_item.h"

namespace lockstep {

std::shared_ptr<CheckpointItem> virtual_rank_item();

}  // namespace lockstep
