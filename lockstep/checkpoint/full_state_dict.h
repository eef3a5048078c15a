// The whole state of a model or an optimiser of which each rank holds a part, on rank 0, one tensor at a
// time: for one file that every tool reads, and for a look at what was trained.
//
//   dist::write_full_state_dict("model.safetensors", model);        // a ShardedDataParallel
//   dist::write_full_state_dict("optimizer.safetensors", optimizer);
//
//   dist::visit_full_state_dict(model, [](const std::string& name, const at::Tensor& tensor) {
//     log(name, tensor.norm());                                     // on rank 0
//   });
//   const dist::NamedTensors all = dist::full_state_dict(model);    // all at once; empty on other ranks
//
// Names       are those of a model that one process holds whole, and of its optimiser's state_dict() by names
//             ("state.fc.weight.exp_avg"). Python: safetensors.torch.load_file("model.safetensors").
// Which       everything with a checkpoint_item(): ShardedDataParallel and its optimisers, and whatever else
//             CheckpointState::add() takes as such, in any form and stage. Values that are no tensors are
//             left out.
// Memory      of rank 0 beyond its own part: the largest tensor. Of each other rank: two pieces of at most
//             64 MiB, of which one arrives while the other is on its way. Ranks of one machine have these in
//             group memory, which stays with the group. full_state_dict() needs the whole.
// Collective  every rank of the group (default: world()), at a time when nobody steps. The visitor and the
//             file are rank 0's.
// Order       of visits: by name. Of the file: formats/safetensors_writer.h.
// Atomic      the file appears whole, or the old one stays.
// Fails       on all ranks alike, and the group stays usable: SystemError: the file cannot be written.
//             InvalidArgument: parts that overlap or leave a hole, a dtype that safetensors lacks. What the
//             visitor throws, on rank 0; an Error of the same words on the others.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>

#include "lockstep/checkpoint/checkpoint_item.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep {

struct FullStateDictOptions {
  std::optional<ProcessGroup> process_group = {};  // default: world(), or this process alone
};

void write_full_state_dict(const std::string& path, HasCheckpointItem& object,
                           const FullStateDictOptions& options = {});

// The tensor is the visitor's for as long as the call lasts.
void visit_full_state_dict(HasCheckpointItem& object,
                           const std::function<void(const std::string&, const at::Tensor&)>& visit,
                           const FullStateDictOptions& options = {});

NamedTensors full_state_dict(HasCheckpointItem& object, const FullStateDictOptions& options = {});

}  // namespace lockstep
