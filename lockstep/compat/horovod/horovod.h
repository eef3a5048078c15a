// Horovod's interface for libtorch: operations that ranks match by name, and the optimizer over them.
//
//   namespace hvd = lockstep::compat::horovod;
//   hvd::init();
//   torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1 * hvd::size()).momentum(0.9));
//   hvd::DistributedOptimizer optimizer(sgd, net->named_parameters().pairs(),
//                                       {.compression = hvd::Compression::fp16});
//   hvd::broadcast_parameters(*net, 0);
//   hvd::broadcast_optimizer_state(sgd, 0);
//   for (auto& batch : loader) {
//     optimizer.zero_grad();
//     cross_entropy(net->forward(batch.data), batch.target).backward();  // gradients travel meanwhile
//     optimizer.step();
//   }
//
// Order        ranks submit names in any order, from any thread. Names that are ready together run as one;
//              it never shows in a result (named/engine.h has cycles, fusion, stalls and failures).
// Rest         of the library works beside it, in the same job. The order rule of other collectives stays.
// SyncBatchNorm is the library's layer (parallel/sync_batch_norm/).
// Differs      docs/horovod.md says in what, and which variables HOROVOD_* count.
// Source       horovod 0.28.1: horovod/torch/__init__.py, mpi_ops.py, optimizer.py, functions.py.
#pragma once

#include "lockstep/compat/horovod/basics.h"      // IWYU pragma: export
#include "lockstep/compat/horovod/functions.h"   // IWYU pragma: export
#include "lockstep/compat/horovod/operations.h"  // IWYU pragma: export
#include "lockstep/compat/horovod/optimizer.h"   // IWYU pragma: export
#include "lockstep/parallel/sync_batch_norm/sync_batch_norm.h"

namespace lockstep::compat::horovod {

using lockstep::SyncBatchNorm;

}  // namespace lockstep::compat::horovod
