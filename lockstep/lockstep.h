// Everything a training program needs, in one include; each line says what the header brings. Short compile
// times: include only what you use.
#pragma once

#include "lockstep/amp/grad_scaler.h"                 // loss scaling for float16
#include "lockstep/autograd/activation_checkpoint.h"  // checkpoint: memory for time
#include "lockstep/autograd/autocast.h"               // a region in mixed precision
#include "lockstep/autograd/saved_tensors_hooks.h"    // what becomes of tensors kept for backward
#include "lockstep/base/error.h"                      // the exceptions: PeerLost, Mismatch, Timeout, ...
#include "lockstep/checkpoint/full_state_dict.h"      // a sharded model or optimiser, whole, tensor by tensor
#include "lockstep/checkpoint/load_checkpoint.h"      // load_checkpoint: back to where one was taken
#include "lockstep/checkpoint/save_checkpoint.h"      // save_checkpoint, save_checkpoint_async
#include "lockstep/comm/collectives/monitored_barrier.h"  // a barrier that says who did not come
#include "lockstep/comm/collectives/objects.h"            // all_gather_object and the like: bytes and JSON
#include "lockstep/data/cifar.h"                          // CIFAR-10 and CIFAR-100
#include "lockstep/data/data_loader.h"                    // make_data_loader: batches, prefetched in order
#include "lockstep/data/distributed_sampler.h"            // which items are this rank's
#include "lockstep/data/find_mnist.h"     // where MNIST is on this machine, or a download of it
#include "lockstep/data/mnist.h"          // MNIST and Fashion-MNIST
#include "lockstep/data/token_dataset.h"  // windows of a memory-mapped file of tokens
#include "lockstep/data/torch_dataset.h"  // libtorch's data sets in make_data_loader
#include "lockstep/data/transforms.h"  // random crop, flip, normalise: the same image on any rank and worker
#include "lockstep/job/device_mesh.h"  // ranks on a grid with named axes
#include "lockstep/job/groups.h"       // new_group, new_subgroups, split_group
#include "lockstep/job/job.h"          // init_process_group, get_rank, world
#include "lockstep/job/join.h"         // join: training loops of different lengths
#include "lockstep/job/model_parallel.h"  // init_model_parallel: groups of tensor, pipeline, data parallelism
#include "lockstep/job/rank_zero.h"       // rank_zero_first, rank_zero_only
#include "lockstep/job/spawn.h"           // spawn: the ranks as processes started from here
#include "lockstep/job/stop_signals.h"    // StopSignals: SIGTERM and SIGUSR1, agreed at a step boundary
#include "lockstep/job/virtual_ranks.h"   // virtual_world_size, get_virtual_rank
#include "lockstep/models/generate.h"     // generate: continues tokens, greedy or drawn
#include "lockstep/models/gpt2.h"         // GPT-2 with Hugging Face's names; next_token_loss
#include "lockstep/models/gpt2_config.h"  // its sizes, small to XL
#include "lockstep/models/gpt2_files.h"   // its files: load_gpt2, save_gpt2, gpt2_from_pretrained
#include "lockstep/models/pipeline_gpt2.h"  // GPT-2 on a mesh of tensor, pipeline, context and data parallelism
#include "lockstep/models/resnet.h"         // ResNet-18, -34, -50 with torchvision's names
#include "lockstep/models/tensor_parallel_gpt2.h"  // GPT-2 with each layer shared out over ranks
#include "lockstep/optim/adam.h"                   // optim::Adam, optim::AdamW: one pass over memory
#include "lockstep/optim/clip_grad.h"              // clip_grad_norm_, clip_grad_value_
#include "lockstep/optim/gradient_accumulation.h"  // several micro-batches make one step
#include "lockstep/optim/lamb.h"                   // optim::LAMB: Adam for very large batches
#include "lockstep/optim/lars.h"                   // optim::LARS: SGD for very large batches
#include "lockstep/optim/lr_scheduler.h"           // optim::StepLR, CosineAnnealingLR, warm-up, ...
#include "lockstep/optim/reduce_lr_on_plateau.h"   // optim::ReduceLROnPlateau
#include "lockstep/optim/sgd.h"                    // optim::SGD
#include "lockstep/optim/torch_optimizer_state.h"  // state_dict, load_state_dict of libtorch's optimisers
#include "lockstep/parallel/context_parallel/ring_attention.h"  // attention over a sequence shared out
#include "lockstep/parallel/ddp/distributed_data_parallel.h"    // gradients averaged while backward runs
#include "lockstep/parallel/model_parallel/gradient_norm.h"     // clipping over a whole mesh
#include "lockstep/parallel/pipeline/balance.h"              // how many layers each stage of a pipeline gets
#include "lockstep/parallel/pipeline/deferred_batch_norm.h"  // BatchNorm by the whole batch of a pipeline
#include "lockstep/parallel/pipeline/pipeline.h"             // a model whose stages lie on several ranks
#include "lockstep/parallel/pipeline/pipeline_skip.h"        // skip connections between its stages
#include "lockstep/parallel/replicas/broadcast_optimizer_state.h"  // the optimiser state of one rank on all
#include "lockstep/parallel/sync_batch_norm/convert_sync_batchnorm.h"  // BatchNorm layers see all ranks' batches
#include "lockstep/parallel/sync_batch_norm/sync_batch_norm.h"         // SyncBatchNorm
#include "lockstep/parallel/tensor_parallel/column_parallel_linear.h"  // layers shared out over ranks:
#include "lockstep/parallel/tensor_parallel/cross_entropy.h"           // the cross entropy of logits in parts
#include "lockstep/parallel/tensor_parallel/mappings.h"         // whole to parts and back, with gradients
#include "lockstep/parallel/tensor_parallel/model_state.h"      // their checkpoints and gradients' norm
#include "lockstep/parallel/tensor_parallel/parallel_linear.h"  // the linear layers as functions
#include "lockstep/parallel/tensor_parallel/parallel_transformer_layer.h"  // a transformer's layer
#include "lockstep/parallel/tensor_parallel/random.h"                      // random numbers alike, and apart
#include "lockstep/parallel/tensor_parallel/row_parallel_linear.h"  // the counterpart of column_parallel_linear.h
#include "lockstep/parallel/tensor_parallel/vocab_parallel_embedding.h"  // an embedding by rows
#include "lockstep/parallel/virtual_ranks/virtual_rank_item.h"           // their state in a checkpoint
#include "lockstep/parallel/virtual_ranks/virtual_rank_states.h"         // their state, for checkpoints
#include "lockstep/parallel/virtual_ranks/virtual_ranks.h"     // the same bits on any number of processes
#include "lockstep/parallel/zero/sharded_data_parallel.h"      // each rank steps its part of one model (ZeRO)
#include "lockstep/parallel/zero/zero_redundancy_optimizer.h"  // an optimiser's state shared out over ranks
#include "lockstep/tensor/caching_allocator.h"                 // tensor memory kept between steps
#include "lockstep/tensor/collectives.h"                       // all_reduce, broadcast, ... on tensors
#include "lockstep/tensor/functional.h"                        // collectives through which gradients flow
#include "lockstep/tensor/meta_init.h"                         // modules whose parameters have no memory yet
#include "lockstep/tensor/point_to_point.h"                    // send, recv, isend, irecv, batch_isend_irecv
#include "lockstep/tensor/random_state.h"                      // get_rng_state, set_rng_state
#include "lockstep/tensor/state_dict.h"                        // save_state_dict, load_state_dict
#include "lockstep/train/best_checkpoints.h"                   // which checkpoints are the best by a metric
#include "lockstep/train/early_stopping.h"                     // EarlyStopping, agreed by all ranks
#include "lockstep/train/gather_for_metrics.h"                 // outputs of all ranks in the data set's order
#include "lockstep/train/mean.h"                               // means of metrics over the ranks
#include "lockstep/train/metrics.h"            // several means and sums over the ranks at once
#include "lockstep/train/metrics_file.h"       // one JSON object or CSV row per line
#include "lockstep/train/parameters_sha256.h"  // do all ranks hold the same bits?
#include "lockstep/train/profiler.h"           // profile: where time goes, with our collectives
#include "lockstep/train/progress.h"           // progress line of a person's terminal
#include "lockstep/train/reproducible.h"       // seeds, deterministic algorithms
#include "lockstep/train/summary_writer.h"     // SummaryWriter: curves for TensorBoard

// What needs no tensors is written below libtorch, in lockstep::comm; here under the names that
// torch.distributed has.
namespace lockstep {
using comm::all_gather_object;
using comm::broadcast_object;
using comm::gather_object;
using comm::monitored_barrier;
using comm::recv_object;
using comm::scatter_object;
using comm::send_object;
}  // namespace lockstep
