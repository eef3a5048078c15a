// Gives every rank one rank's parameters, optimizer state, or object.
//
//   hvd::broadcast_parameters(*net, 0);                          // parameters and buffers
//   hvd::broadcast_optimizer_state(adam, 0);                     // state and options
//   const auto settings = hvd::broadcast_object(nlohmann::json{{"lr", 0.1}}, 0);
//   const std::vector<nlohmann::json> all = hvd::allgather_object(hvd::rank());
//
// Collective  every rank of the process set, with the same root and name, in any order beside other names.
// Optimizer   what its save() writes: one that has made no step yet stays as it is. LBFGS is refused.
// Objects     are JSON; bytes are a string. What arrives is never executed.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/compat/horovod/operations.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep::compat::horovod {

void broadcast_parameters(const NamedTensors& parameters, int root_rank, const ProcessSet& process_set = {});
void broadcast_parameters(const torch::nn::Module& module, int root_rank, const ProcessSet& process_set = {});
void broadcast_optimizer_state(torch::optim::Optimizer& optimizer, int root_rank,
                               const ProcessSet& process_set = {});

// The root's object; other ranks' are ignored.
nlohmann::json broadcast_object(const nlohmann::json& object, int root_rank,
                                const OperationOptions& options = {});
// By rank, on every rank.
std::vector<nlohmann::json> allgather_object(const nlohmann::json& object,
                                             const OperationOptions& options = {});

}  // namespace lockstep::compat::horovod
