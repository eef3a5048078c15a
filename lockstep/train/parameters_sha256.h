// A checksum of a model's parameters, to show that ranks (or runs) hold the same bits.
//
//   const std::string mine = parameters_sha256(net->named_parameters().pairs());
//   const bool identical = all_ranks_hold(mine);                          // the same string everywhere
//
// SHA-256 over name, dtype, shape and contiguous bytes of each tensor in the given order; 64 hex digits.
// Tensors on a GPU are copied to the host one by one.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/job/job.h"

namespace lockstep {

std::string parameters_sha256(const std::vector<std::pair<std::string, at::Tensor>>& parameters);

// Every rank of `group` gives its checksum. Returns true on every rank if all are equal. Collective. Throws
// InvalidArgument if the string is not 64 characters long, and in a process outside the group.
bool all_ranks_hold(const std::string& sha256, const ProcessGroup& group = world());

}  // namespace lockstep
