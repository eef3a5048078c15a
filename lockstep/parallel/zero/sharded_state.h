// How a ShardedDataParallel and its optimiser are saved and loaded (checkpoint/): under the names and with
// the shapes of a model that each rank holds whole, so that a checkpoint of the one is loaded by the other,
// and by any number of ranks.
//
//   state.add("model", model).add("optimizer", optimizer);
//   dist::save_checkpoint("runs/7", state, {.step = 100});
//
// Parameters  are written once, by all ranks together, and read by every rank.
// State       of a rank's part of a parameter is written by that rank, as boxes of the whole parameter's
//             shape (boxes_of_range() of checkpoint/save_plan.h). For loading a rank reads
//             the whole tensors of which it has a part, so it needs memory for these meanwhile.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/checkpoint/checkpoint_item.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/parameter_shard.h"

namespace lockstep::zero {

// Of the optimiser whose parameters these are. `masters` are those of them that are float32 masters of 16-bit
// parameters, by the parameters' names; they are saved as "state.NAME.master_weight".
std::shared_ptr<CheckpointItem> sharded_state_item(optim::Optimizer& optimizer,
                                                   std::vector<optim::ParameterShard> shards,
                                                   const NamedTensors& masters);

// What load() calls before and after it writes to the tensors.
struct AroundLoad {
  std::function<void()> begins;
  std::function<void()> ended;
};

// Of parameters of which each rank has its part, and of tensors that all ranks have whole. load() fills them.
// A rank reads the whole parameters of which it has a part.
std::shared_ptr<CheckpointItem> parted_tensors_item(std::vector<optim::ParameterShard> parts,
                                                    NamedTensors whole, NamedTensors buffers,
                                                    AroundLoad around);

// Of tensors that all ranks have in common, which load() fills in place; `loaded` is called then.
std::shared_ptr<CheckpointItem> common_tensors_item(NamedTensors parameters, NamedTensors buffers,
                                                    std::function<void()> loaded);

}  // namespace lockstep::zero
