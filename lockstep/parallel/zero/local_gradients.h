// LocalGradients: the sums of this rank's backward passes since the last step, in the group's memory, where
// the other ranks can read them. It never communicates.
//
//   LocalGradients gradients(trained, group, layout);
//   loss.backward();                                 // .grad of each parameter lies in its bucket now
//   gradients.complete();                            // zeros for parameters without a gradient
//   gradients.local()->flat(0);                      // for all ranks to read
//   gradients.drop();                                // .grad of all is undefined
//
// Threads  autograd may call the hooks on any thread, so one mutex guards everything.
#pragma once

#include <cstddef>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/gradients/autograd_hooks.h"
#include "lockstep/parallel/gradients/bucket_store.h"
#include "lockstep/parallel/gradients/parameter_claims.h"
#include "lockstep/parallel/zero/step_gradients.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep {

class LocalGradients : public StepGradients {
 public:
  // `parameters` are distinct leaves that require gradients, equal on every rank of the group. The plan is
  // for their sizes.
  LocalGradients(const NamedTensors& parameters, const ProcessGroup& group, BucketPlan layout,
                 Refusal refusal);

  std::optional<std::size_t> first_shared() const override { return claims_.first_shared(); }
  void renew() override;
  std::vector<bool> complete() override;
  void drop() override;
  const at::Tensor& flat(std::size_t bucket) const override { return store_.flat(bucket); }
  const BucketStore* local() const override { return &store_; }
  std::size_t bytes() const override { return store_.bytes(); }

 private:
  void on_gradient(std::size_t parameter, const at::Tensor& incoming);
  void on_end_of_backward();
  void expect_fit(std::size_t parameter) const;

  const ProcessGroup group_;
  const Refusal refusal_;
  std::mutex mutex_;
  // guarded by mutex_
  ParameterClaims claims_;
  BucketStore store_;
  bool is_in_backward_ = false;
  int followed_ = -1;    // autograd's number of the backward whose end is awaited
  AutogradHooks hooks_;  // destroyed first: no hook is called after that
};

}  // namespace lockstep
