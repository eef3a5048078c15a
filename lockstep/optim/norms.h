// Sums of squares over whole tensors, in float64, with the same bits for any number of threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/optim/norm_reducer.h"
#include "lockstep/optim/step_kernels.h"

namespace lockstep::optim {

struct NormItem {
  at::Tensor param;
  at::Tensor grad;
  double weight_decay = 0;
};

// |param|^2 and |grad + weight_decay * param|^2 of each; real tensors.
std::vector<SquareSums> square_sums(const std::vector<NormItem>& items);

// The sums of all ranks of the reducer, of the same items on each.
void add_up(std::vector<SquareSums>& sums, const NormReducer& reducer);

// |t|^2 over all of them together; real or complex.
double square_sum(const std::vector<at::Tensor>& tensors);

}  // namespace lockstep::optim
