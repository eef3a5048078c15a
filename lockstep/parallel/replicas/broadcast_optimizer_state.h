// broadcast_optimizer_state(): gives every rank the optimiser state of one, as Horovod's function of that
// name. For state that only rank 0 has read, or that ranks may have differently.
//
//   torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-3));
//   if (dist::get_rank() == 0) dist::load_state_dict(optimizer, dist::load_tensors("optimizer.safetensors"));
//   dist::broadcast_optimizer_state(optimizer);
//
// What        momenta, step counts and all else that the root has for its parameters, in every dtype, and all
//             options of every group, as the learning rate. Parameters themselves are not part of it:
//             DistributedDataParallel sends those. Nor is a scheduler: add it to what is loaded, or step it.
// Afterwards  each rank has the root's state to the bit, also for parameters of which it had none; what it
//             had and the root has not is gone. The root's optimiser is not changed.
// Optimisers  those of torch_optimizer_state.h: torch::optim::SGD, Adam, AdamW, RMSprop and Adagrad, and
//             all of lockstep::optim. Each rank has one of the same class, over the same parameters in the
//             same order. Not for optimisers of shards, of which each rank has its own.
// Root        a rank of the whole job, or GroupRank{1}: of the group, as everywhere (peer.h).
// Collective  every rank of the group. Some small objects, then the bytes, by way of the CPU's memory, where
//             each rank has the state once more meanwhile. Blocks.
// Fails       on all ranks alike, with the group usable: InvalidArgument for an optimiser whose state
//             cannot be had (LBFGS), or that the root's state does not fit, naming the rank. Ranks that it
//             fits have it then. A process outside of the group throws InvalidArgument.
#pragma once

#include <torch/optim/optimizer.h>

#include "lockstep/comm/collectives/peer.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/job/job.h"

namespace lockstep {

void broadcast_optimizer_state(torch::optim::Optimizer& optimizer, Peer root = 0,
                               const ProcessGroup& group = world());

}  // namespace lockstep
