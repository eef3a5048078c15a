// gather_named_tensors(): one rank gets the named tensors of all ranks, which may differ in number, names and
// shapes.
//
//   const NamedTensors all = gather_named_tensors(own, group, /*root=*/GroupRank{0});
//
// Result      on the root, in the CPU's memory: its own tensors themselves, then those of each other rank in
//             rank order. Empty on other ranks.
// Collective  every rank of the group. Names and shapes travel first, then one message per tensor. So the
//             root needs memory for the result alone. Blocks until this rank's part is done.
// Fails       as gather_object, send and recv do.
#pragma once

#include "lockstep/comm/collectives/peer.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep {

NamedTensors gather_named_tensors(const NamedTensors& own, const ProcessGroup& group, GroupRank root);

}  // namespace lockstep
