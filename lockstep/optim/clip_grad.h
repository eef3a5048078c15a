// Gradient clipping, as torch.nn.utils.clip_grad_norm_ and clip_grad_value_: between backward() and step().
//
//   loss.backward();
//   const double norm = dist::clip_grad_norm_(ddp.parameters(), 1.0);
//   optimizer.step();
//
// clip_grad_norm_  scales all gradients by max_norm / (norm + 1e-6) if that is below 1. `norm` is the norm of
//                  all gradients as one vector, before scaling, and is returned. norm_type p >= 1, or
//                  infinity: the largest absolute value. The 2-norm is computed in one pass, in float64, with
//                  the same bits for any number of threads. A norm that is not finite is an InvalidArgument
//                  with error_if_nonfinite, and nothing is changed. Otherwise, as in torch, infinity makes
//                  all gradients zero or NaN, and NaN makes them NaN. clip_grad_value_ clips every element to
//                  [-clip_value, clip_value]; NaN stays.
//
// Ranks      Neither communicates, except for a norm over the ranks of a reducer (norm_reducer.h), where each
//            rank has a part of the gradients. After DDP's backward every rank has the same gradients. So all
//            have the same norm and clip alike, as one process with the whole batch would. Under no_sync
//            gradients are this rank's alone, so clip only before a step. Divide by GradScaler's scale first
//            (unscale_). Parameters without gradient are skipped; if there is no gradient at all, the norm is
//            0. A sparse gradient is an InvalidArgument, because its duplicates would have to be added up
//            first (coalesce it).
// Parts      of a model whose rest other ranks have (tensor-parallel ranks, stages of a pipeline) are an
//            InvalidArgument without a reducer. GradientNorm (parallel/model_parallel) clips by the norm of
//            the whole model.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/optim/norm_reducer.h"

namespace lockstep {

// NOLINTBEGIN(readability-identifier-naming): torch's names
double clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm, double norm_type = 2.0,
                       bool error_if_nonfinite = false, const NormReducer& reducer = {});

// The two halves, as torch.nn.utils.get_total_norm (of tensors, not of parameters' gradients) and
// clip_grads_with_norm_.
double get_total_norm(const std::vector<at::Tensor>& tensors, double norm_type = 2.0,
                      bool error_if_nonfinite = false, const NormReducer& reducer = {});
void clip_grads_with_norm_(const std::vector<at::Tensor>& parameters, double max_norm, double total_norm);

void clip_grad_value_(const std::vector<at::Tensor>& parameters, double clip_value);
// NOLINTEND(readability-identifier-naming)

}  // namespace lockstep
