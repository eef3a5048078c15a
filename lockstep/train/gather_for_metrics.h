// gather_for_metrics(): gives every rank the outputs of all ranks for a data set, in the data set's order and
// without padding. It is for metrics that are not a mean over samples: AUC, BLEU, a confusion matrix.
//
//   DistributedSampler sampler(test.size(), {.shuffle = false, .pad = false});
//   auto loader = make_data_loader(test, sampler, {.batch_size = 250});
//   const torch::NoGradGuard no_grad;
//   net->eval();
//   std::vector<at::Tensor> outputs;
//   for (auto& batch : loader) outputs.push_back(net->forward(batch.data));    // may be none on some rank
//   const at::Tensor all = gather_for_metrics(outputs, sampler);               // [test.size(), 10]
//
// Step by step, with a sampler that pads, so that all ranks have the same number of batches:
//
//   for (auto& batch : loader) {
//     const at::Tensor output = gather_for_metrics(net->forward(batch.data), sampler);
//     const at::Tensor target = gather_for_metrics(batch.target, sampler);
//     auc.update(output, target);
//   }
//
// Rows        of the first dimension belong to items of the data set: either all items of this rank in the
//             epoch, or the batch that the loader has handed out last. Ranks may have different numbers of
//             rows, and none. The other dimensions and the dtype are the same on all ranks. A rank without
//             rows may give an undefined tensor or an empty list.
// Result      A new tensor on the device of the rows, detached, the same on every rank: a row for each item,
//             in the order of indices in the data set. Padding at the end of an epoch is left out. So a whole
//             epoch comes in the data set's order, also with shuffle; with drop_last, without the dropped
//             items.
// Batches     A list has the batches in the order of the loader. Each rank may call the function once for an
//             epoch, or for every step.
// Virtual     ranks: if the sampler serves several of them, a list has their batches in turn, as loaders give
//             them. Call it after the loop. With pad, neither the virtual ranks' batches nor the result
//             depend on the number of processes. One tensor in place of a list has the order of
//             sampler.indices().
// libtorch    Its loader requests batches ahead, so call the function after the loop.
// Collective  every rank of the group. The sampler divides the data set among these ranks. Three all_gathers,
//             two of which are small; blocks. dtypes of collectives (tensor/collectives.h). Memory: twice the
//             result.
// Fails       on all ranks alike, and the group stays usable. InvalidArgument: rows that are neither the
//             epoch nor the last batch, a tensor without dimensions, a call in the turn of a virtual rank.
//             Mismatch: shapes or dtypes that differ, ranks at different batches, a sampler for other ranks.
//             A process outside of the group throws InvalidArgument.
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
