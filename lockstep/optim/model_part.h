// Parameters that are part of something larger whose rest other ranks have. Layers and pipelines mark theirs.
// So what takes norms of whole parameters and models (LARS, LAMB, clip_grad_norm_) can refuse to take that of
// a part.
//
//   mark_as_part(weight, ModelPart::PIECE);
//   is_part(weight, ModelPart::PIECE)                   // true
//
// A mark      belongs to the tensor object. It stays when load(), to() or a wrapper gives it other memory.
//             An alias or a clone has none.
// Threads     any.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace lockstep::optim {

enum class ModelPart : unsigned {
  PIECE = 1,  // of a parameter, on tensor-parallel ranks
  STAGE = 2   // of a model, on the ranks of a pipeline
};

void mark_as_part(const at::Tensor& parameter, ModelPart part);
bool is_part(const at::Tensor& parameter, ModelPart part);

// Why the norm of these parameters' gradients is not that of the model, and what to call instead; empty if
// none of them is a part.
std::string why_not_the_models_norm(const std::vector<at::Tensor>& parameters);

}  // namespace lockstep::optim
