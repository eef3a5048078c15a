// Verifies, before anything else is communicated, that every rank wraps the same model in the same way.
//
//   verify_same_model(DDP_WRAPPER, describe_model(parameters, buffers, "bucket_cap_mb=25"), group);
//
// A difference is a Mismatch on every rank, in the same words. It names the wrapper, the tensor, the ranks
// and both versions:
//
//   parameter "fc1.weight" is [120, 784] float32 on rank 0 but [128, 784] float32 on rank 2
//
// Collective  every rank of the group.
// Cost        about 100 bytes per tensor and rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/wrapper.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep {

// One line per fact, in an order that depends on the program alone. Pure.
std::string describe_model(const NamedTensors& parameters, const NamedTensors& buffers,
                           const std::string& options);

// The first fact on which some rank differs from rank 0, as a sentence; nothing if all agree. Pure.
std::optional<std::string> first_difference(const std::vector<std::string>& descriptions);

void verify_same_model(const Wrapper& wrapper, const std::string& description, const ProcessGroup& group);

}  // namespace lockstep
