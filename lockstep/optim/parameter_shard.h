// ParameterShard: the part of a parameter that this rank steps, if ranks share the work or the memory of an
// optimiser.
//
//   const at::Tensor half = flat.narrow(0, 512 * rank, 512).detach();      // of a [32, 32] weight, 2 ranks
//   dist::optim::LAMB optimizer(std::vector<dist::optim::ParamGroup>(), dist::optim::LAMBOptions(6e-3));
//   optimizer.add_param_group({dist::optim::ParameterShard{"fc.weight", {32, 32}, 512 * rank, half}});
//   optimizer.reduce_norms(dist::NormReducer(group));
//
// Steps     are, element by element, those of the whole parameter. Options that depend on the number of
//           dimensions (exclude_1d) use the whole parameter's.
// Norms     are of the whole parameter if the optimiser was given a reducer over the ranks that share it
//           (norm_reducer.h).
// Ranks     With a reducer all ranks have the same list of shards, with a gradient for the same ones. A rank
//           without a part of a parameter has a shard without elements.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::optim {

struct ParameterShard {
  std::string name;
  std::vector<std::int64_t> shape;  // of the whole parameter
  std::int64_t offset = 0;          // of the first element, in the whole parameter as contiguous memory
  at::Tensor tensor;                // a leaf of one dimension, or the whole parameter
  at::Tensor parameter = {};        // of which `tensor` is the part; undefined: `tensor` is all there is
};

}  // namespace lockstep::optim
