// PreparedSave: the data that one rank writes to a checkpoint, once all ranks have agreed about it. The
// training thread makes it. write_checkpoint() may then run on another thread.
//
//   PreparedSave save = prepare_save(ranks, folder, state, options);          // collective
//   const std::string path = write_checkpoint(ranks, save);                    // collective
//
// Used by this room only; save_checkpoint.h is the contract.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "lockstep/checkpoint/checkpoint_ranks.h"
#include "lockstep/checkpoint/checkpoint_state.h"
#include "lockstep/checkpoint/save_checkpoint.h"
#include "lockstep/checkpoint/save_plan.h"
#include "lockstep/formats/checkpoint_index.h"

namespace lockstep {

struct PieceToWrite {
  PlannedPiece piece;
  at::Tensor tensor;  // box of the piece; any strides and device
};

struct PreparedSave {
  std::string folder;
  SaveCheckpointOptions options;
  CheckpointIndex index;             // without files and pieces
  std::vector<PieceToWrite> pieces;  // of this rank
  // of tensors that share memory: the name under which they were written
  std::map<std::string, std::string> aliases;
};

// Throws on all ranks alike: InvalidArgument, Mismatch.
PreparedSave prepare_save(const CheckpointRanks& ranks, const std::string& folder, CheckpointState& state,
                          const SaveCheckpointOptions& options);

}  // namespace lockstep
