// One rank's file of a checkpoint: its pieces, in the plan's order, as a safetensors file.
//
//   const WrittenShard shard = write_shard("/runs/7/.unfinished/shard-00000-of-00002.safetensors", pieces,
//   true);
//
// Throws SystemError naming the file.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lockstep/checkpoint/pace.h"
#include "lockstep/checkpoint/prepared_save.h"
#include "lockstep/formats/checkpoint_index.h"

namespace lockstep {

struct WrittenShard {
  CheckpointFile file;
  std::vector<CheckpointPiece> pieces;  // in the order given; their file number is not filled in
};

std::string shard_name(int rank, int ranks);

// `durable`: the file is synced to the disk. If `pace` is null, it is written as fast as possible.
WrittenShard write_shard(const std::string& folder, const std::string& name,
                         std::span<const PieceToWrite> pieces, bool durable, Pace* pace);

}  // namespace lockstep
