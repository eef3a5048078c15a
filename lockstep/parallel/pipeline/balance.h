// How many layers of a torch::nn::Sequential each stage of a pipeline gets.
//
//   torch::nn::Sequential layers = all_layers();                        // the same on every rank
//   const auto balance = dist::balance_by_time(dist::get_world_size(), layers, batch.data);  // {3, 5}
//   torch::nn::Sequential mine = dist::sequential_part(layers, balance, dist::get_rank());
//   dist::Pipeline pipeline({mine}, cross_entropy_loss(), {.micro_batches = 4});
//
// Several chunks a rank and ZB_V: the cut that makes the schedule's step shortest, with what it costs.
//
//   torch::nn::Sequential layers = all_layers();
//   const dist::PipelineShape shape = {
//       .kind = dist::PipelineScheduleKind::ZB_V, .stages = 2, .micro_batches = 4, .virtual_stages = 2};
//   const dist::PipelineBalance balance = dist::balance_by_time(shape, layers, batch.data);  // {1, 2, 2, 3}
//   const auto part = [&](int chunk) {
//     return dist::sequential_part(layers, balance.layers, shape.part_of(dist::get_rank(), chunk));
//   };
//   dist::Pipeline pipeline({part(0), part(1)}, cross_entropy_loss(),
//                           {.schedule = shape.kind, .micro_batches = 4, .work = balance.work});
//
// A program that knows its layers writes the list itself: {3, 3}. With several chunks a rank, parts are the
// ranks times the chunks, and rank r takes parts r, p + r, ...
//
// Measured    balance_by_time runs the forward and the backward of each layer on the sample a few times, all
//             layers in turn, and takes the median; for a shape also the gradient of the layer's input alone.
//             The machine should do nothing else meanwhile. balance_by_size adds the bytes that autograd
//             keeps for each layer, times micro_batches, to those of its parameters, times param_scale. The
//             sample is a micro-batch. Layers take and return one tensor. Gradients, buffers and random
//             numbers are as before afterwards.
// Collective  both, on the group: the measurement of its rank 0 counts on all ranks. The other functions are
//             not.
// Optimal     balance_costs finds the cut with the smallest largest part. balance_by_time of a shape searches
//             as balance_pipeline (schedules/pipeline_balance.h).
// Throws      InvalidArgument: fewer layers than parts, parts below 1, a cost that is negative or not finite,
//             a balance that does not sum to the number of layers or has an entry below 1, and balance_by_*
//             on a process outside of the group.
// Source      torchgpipe.balance; its block partition is another algorithm for the same optimum.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/container/sequential.h>

#include <cstdint>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/job/job.h"
#include "lockstep/schedules/pipeline_balance.h"

namespace lockstep {

// Layers of each part, for these costs of layers. Pure.
std::vector<std::int64_t> balance_costs(const std::vector<double>& costs, int parts);

// Seconds, and bytes, of each layer.
std::vector<double> layer_times(const torch::nn::Sequential& layers, const at::Tensor& sample,
                                int trials = 5);
std::vector<double> layer_bytes(const torch::nn::Sequential& layers, const at::Tensor& sample,
                                int micro_batches = 1, double param_scale = 2);

std::vector<std::int64_t> balance_by_time(int parts, const torch::nn::Sequential& layers,
                                          const at::Tensor& sample, const ProcessGroup& group = world());
// For the shape's schedule. shape.work does not count.
PipelineBalance balance_by_time(const PipelineShape& shape, const torch::nn::Sequential& layers,
                                const at::Tensor& sample, const ProcessGroup& group = world());
// param_scale: 2 for parameters and gradients, 4 with the state of Adam.
std::vector<std::int64_t> balance_by_size(int parts, const torch::nn::Sequential& layers,
                                          const at::Tensor& sample, int micro_batches = 1,
                                          double param_scale = 2, const ProcessGroup& group = world());

// The layers of one part, under the names that they have in the whole, so that state dicts fit together.
torch::nn::Sequential sequential_part(const torch::nn::Sequential& layers,
                                      const std::vector<std::int64_t>& balance, int part);

}  // namespace lockstep
