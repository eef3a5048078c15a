// gather_for_metrics(): what all ranks computed about a data set, on every rank, in the data set's order and
// without the repetitions of padding. For metrics that are no mean over samples: AUC, BLEU, a confusion
// matrix.
//
//   DistributedSampler sampler(test.size(), {.shuffle = false, .pad = false});
//   auto loader = make_data_loader(test, sampler, {.batch_size = 250});
//   const torch::NoGradGuard no_grad;
//   net->eval();
//   std::vector<at::Tensor> outputs;
//   for (auto& batch : loader) outputs.push_back(net->forward(batch.data));    // may be none on some rank
//   const at::Tensor all = gather_for_metrics(outputs, sampler);               // [test.size(), 10]
//
// Step by step, with a sampler that pads, so that all ranks have equally many batches:
//
//   for (auto& batch : loader) {
//     const at::Tensor output = gather_for_metrics(net->forward(batch.data), sampler);
//     const at::Tensor target = gather_for_metrics(batch.target, sampler);
//     auc.update(output, target);
//   }
//
// Rows        of the first dimension belong to items of the data set: all that this rank has had of the
//             epoch, or the batch that the loader has handed out last. Ranks may have different numbers of
//             rows, and none. Behind it all ranks have the same shape, and the same dtype; a rank without
//             rows may give an undefined tensor or an empty list.
// Result      a new tensor on the device of the rows, detached, the same on every rank: a row for each item,
//             by its index in the data set. What is padding at the end of an epoch is left out. So a whole
//             epoch comes in the data set's order, also with shuffle; with drop_last without what was
//             dropped.
// Batches     a list is taken as the loader handed them out, one after the other; each rank may call it once
//             for an epoch, or for every step.
// Virtual     ranks: a list for a sampler that serves several of them takes the batches in turn, as loaders
//             give them, behind the loop. With pad, virtual ranks' batches do not depend on the number of
//             processes, nor does the result. One tensor in place of a list has the order of
//             sampler.indices().
// libtorch    its loader asks ahead, so with it call behind the loop.
// Collective  every rank of the group, whose ranks the sampler divides the data set among. Three
//             all_gathers of which two are small; blocks. dtypes that collectives carry
//             (tensor/collectives.h). Memory: twice the result.
// Fails       on all ranks alike, and the group stays usable. InvalidArgument: rows that are neither the
//             epoch nor the last batch, a tensor without dimensions, a call in the turn of a virtual rank.
//             Mismatch: shapes or dtypes that differ, ranks at different batches, a sampler for other
//             ranks. A process outside of the group throws InvalidArgument.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/data/distributed_sampler.h"
#include "lockstep/job/job.h"

namespace lockstep {

at::Tensor gather_for_metrics(const at::Tensor& rows, const DistributedSampler& sampler,
                              const ProcessGroup& group = world());
at::Tensor gather_for_metrics(const std::vector<at::Tensor>& batches, const DistributedSampler& sampler,
                              const ProcessGroup& group = world());

}  // namespace lockstep
