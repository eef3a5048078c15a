// TiedParameters: parameters that several stages of a pipeline share, such as the embedding of a language
// model and its output layer. Used by Pipeline::tie().
//
// Gradients   of a step are summed over the ranks that hold the parameter. A gradient of earlier steps stays
//             what it is and is added afterwards, so accumulation over steps works.
// Blocks      tie() is collective over the pipeline's group; finish() is one over the holders of each
//             parameter.
// Throws      InvalidArgument on every rank: no rank holds the parameter, or its shapes or dtypes differ.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"

namespace lockstep {

class TiedParameters {
 public:
  // `parameter` is undefined on ranks without it. Every holder gets the values of the lowest one.
  void tie(const ProcessGroup& group, const std::string& name, const at::Tensor& parameter);

  void begin();   // puts earlier gradients aside
  void finish();  // sums this step's gradients and adds the earlier ones
  void cancel();  // after a step that failed: adds the earlier ones back

 private:
  struct Tied {
    at::Tensor parameter;
    ProcessGroup holders;
    at::Tensor earlier;  // gradient
  };
  static void add_earlier(Tied& tied);

  std::vector<Tied> tied_;  // those with other holders than this rank
};

}  // namespace lockstep
