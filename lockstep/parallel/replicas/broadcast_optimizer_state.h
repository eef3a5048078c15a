// broadcast_optimizer_state(): gives every rank the optimiser state of one rank, as Horovod's function of
// that name. Use it for state that only rank 0 has read, or that may differ between ranks.
//
//   torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-3));
//   if (dist::get_rank() == 0) dist::load_state_dict(optimizer, dist::load_tensors("optimizer.safetensors"));
//   dist::broadcast_optimizer_state(optimizer);
//
// What        The momenta, step counts and other state of the root's parameters, in every dtype, and all
//             options of every group, such as the learning rate. Parameters themselves are not part of it,
//             because DistributedDataParallel sends those. A scheduler is not part of it either: load it on
//             every rank, or step it.
// Afterwards  Each rank has the root's state to the bit, also for parameters without state before. State that
//             the root does not have is dropped. The root's optimiser is not changed.
// Optimisers  those of torch_optimizer_state.h: torch::optim::SGD, Adam, AdamW, RMSprop and Adagrad, and all
//             of lockstep::optim. Each rank has one of the same class, over the same parameters in the same
//             order. It is not for optimisers of shards, because each rank has state of its own there.
// Root        a rank of the whole job, or GroupRank{1}, a rank of the group (peer.h).
// Collective  every rank of the group. Some small objects are sent, then the bytes. They go through the CPU's
//             memory, where each rank holds the state a second time meanwhile. Blocks.
// Fails       on all ranks alike, and the group stays usable: InvalidArgument that names the rank, if an
//             optimiser has no readable state (LBFGS), or the root's state does not fit it. Ranks that it
//             fits have the new state then. A process outside of the group throws InvalidArgument.
#pragma once

#include <torch/optim/optimizer.h>

#include "lockstep/comm/collectives/peer.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/job/job.h"

namespace lockstep {

void broadcast_optimizer_state(torch::optim::Optimizer& optimizer, Peer root = 0,
                               const ProcessGroup& group = world());

}  // namespace lockstep
