// Writes a prepared save: each rank its file, rank 0 the index, and then the name that makes the checkpoint
// valid.
//
//   rank 0: lock the folder, remove remains of dead writers, make .step-N.unfinished
//   all:    write and sync shard-R-of-N.safetensors in there
//   rank 0: write and sync checkpoint.json; rename to step-N; sync the folder; remove old ones
//
// A failure anywhere is thrown on all ranks, and the unfinished folder is removed. Used by this room only.
#pragma once

#include <string>

#include "lockstep/checkpoint/checkpoint_ranks.h"
#include "lockstep/checkpoint/pace.h"
#include "lockstep/checkpoint/prepared_save.h"

namespace lockstep {

// Collective. Returns the checkpoint's path.
std::string write_checkpoint(const CheckpointRanks& ranks, const PreparedSave& save, Pace* pace = nullptr);

}  // namespace lockstep
