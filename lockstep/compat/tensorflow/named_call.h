// NamedCall: one run of an operator that ranks match by name. It lives from the operator's start until
// TensorFlow has been told of its end.
//
//   NamedCall::start(attributes, context, done);       // returns at once
//
//   SUBMITTED ──(the last of its names has ended, on the engine's thread)──> results ──> done
//       └──────(refused before anything was sent)──────────────────────────> failure ──> done
//
// Done        What TensorFlow gives points to a std::function<void()>, an argument of the function that
// starts the
//             operator. So the call keeps a copy.
// Memory      ALLREDUCE and BROADCAST write to the output, which is the input's memory where nobody else
//             reads that. The other kinds' results stay the engine's memory, which TensorFlow frees with the
//             tensor.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/c/named.h"
#include "lockstep/compat/tensorflow/tensors.h"

namespace lockstep::compat::tensorflow {

struct NamedAttributes {
  int kind = LOCKSTEP_NAMED_ALLREDUCE;
  std::vector<std::string> names = {};  // none: numbered
  int process_set = 0;
  int op = 0;
  int root = 0;
  double prescale = 1;
  double postscale = 1;
  bool is_awaited = false;
};

class NamedCall {
 public:
  // `attributes` live as long as the kernel, which outlives its runs.
  static void start(const NamedAttributes& attributes, TF_OpKernelContext* context,
                    TF_AsyncOpKernelDoneCallback* done);

 private:
  NamedCall(const NamedAttributes& attributes, TF_OpKernelContext* context, std::function<void()> done)
      : given_(attributes), context_(context), done_(std::move(done)) {}

  bool writes_to_outputs() const;
  void submit();
  lockstep_named_request request_of(std::size_t index, const std::vector<std::int64_t>& shape);
  void read_splits();
  void give_result(std::size_t index);
  void give_received();
  // Ends the call, and deletes it.
  void end() noexcept;
  static void name_ended(void* call);

  const NamedAttributes& given_;
  TF_OpKernelContext* context_;
  std::function<void()> done_;
  std::vector<Tensor> tensors_;  // the inputs, or the outputs where the kind writes to them
  std::vector<std::int64_t> splits_;
  std::vector<lockstep_named> operations_;
  std::atomic<std::size_t> left_ = 0;
};

}  // namespace lockstep::compat::tensorflow
