// Everything a training program needs, in one include; each line says what the header brings. Short compile times: include
// only what you use.
#pragma once

#include "lockstep/base/error.h"                          // the exceptions: PeerLost, Mismatch, Timeout, ...
#include "lockstep/comm/collectives/monitored_barrier.h"  // a barrier that says who did not come
#include "lockstep/comm/collectives/objects.h"            // all_gather_object and the like: bytes and JSON
#include "lockstep/data/data_loader.h"                    // make_data_loader: batches, prefetched in order
#include "lockstep/data/distributed_sampler.h"            // which items are this rank's
#include "lockstep/data/find_mnist.h"  // where MNIST is on this machine, or a download of it
#include "lockstep/data/mnist.h"       // MNIST and Fashion-MNIST
#include "lockstep/job/device_mesh.h"  // ranks on a grid with named axes
#include "lockstep/job/groups.h"       // new_group, new_subgroups, split_group
#include "lockstep/job/job.h"          // init_process_group, get_rank, world
#include "lockstep/job/spawn.h"        // spawn: the ranks as processes started from here
#include "lockstep/parallel/ddp/distributed_data_parallel.h"  // gradients averaged while backward runs
#include "lockstep/tensor/caching_allocator.h"                // tensor memory kept between steps
#include "lockstep/tensor/collectives.h"                      // all_reduce, broadcast, ... on tensors
#include "lockstep/tensor/functional.h"                       // collectives through which gradients flow
#include "lockstep/tensor/point_to_point.h"                   // send, recv, isend, irecv, batch_isend_irecv
#include "lockstep/tensor/state_dict.h"                       // save_state_dict, load_state_dict
#include "lockstep/train/metrics_file.h"                      // one JSON object per line
#include "lockstep/train/parameters_sha256.h"                 // do all ranks hold the same bits?
#include "lockstep/train/progress.h"                          // progress line of a person's terminal

// What needs no tensors is written below libtorch, in lockstep::comm; here under the names that torch.distributed has.
namespace lockstep {
using comm::all_gather_object;
using comm::broadcast_object;
using comm::gather_object;
using comm::monitored_barrier;
using comm::recv_object;
using comm::scatter_object;
using comm::send_object;
}  // namespace lockstep
