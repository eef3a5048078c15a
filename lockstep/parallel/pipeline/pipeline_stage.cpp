#include "lockstep/parallel/pipeline/pipeline_stage.h"

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::detail {

const at::Tensor& only_tensor(const Tensors& tensors) {
  if (tensors.size() == 1) return tensors.front();
  throw InvalidArgument(str("Pipeline: a function that takes one tensor got ", tensors.size(),
                            "; let it take a std::vector<at::Tensor>"));
}

}  // namespace lockstep::detail
