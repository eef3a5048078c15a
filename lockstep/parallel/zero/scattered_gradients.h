// ScatteredGradients: gradients that are averaged while backward runs, each rank keeping its own parts
// (ZeRO's stage 2). A rank holds an N-th of the gradients and what is on its way.
//
//   ScatteredGradients gradients(trained, group, plan, share, {.caps = caps}, "SimpleCNN", refusal);
//   loss.backward();                                 // all ranks meet; .grad of all is undefined afterwards
//   gradients.complete();
//   gradients.flat(piece.bucket);                    // this rank's averages
//
//            first gradient             all buckets are reduced
//   ┌──────┐ ─────────────▶ ┌─────────┐ ──────────────────────▶ ┌──────┐
//   │ IDLE │                │ IN_PASS │                         │ IDLE │
//   └──────┘                └─────────┘                         └──────┘
//                                │ an error: of the group, or this rank's, which aborts the group
//                                ▼
//                           ┌────────┐
//                           │ FAILED │  for good
//                           └────────┘
//
// Pass        a backward, with all that run inside it (reentrant checkpointing). Buckets start in index order
//             as soon as their gradients are there, the rest at the end with zeros. After the first pass rank
//             0 tells all in which order its gradients came, and buckets follow that order.
// Step        has as many passes on all ranks. A rank without any takes part in one with zeros, or with a
//             .grad that the program has set.
// Collective  every pass, and the complete() of a step without a pass.
// Fails       InvalidArgument: a second gradient of a parameter in one pass, as of a weight that several
//             checkpointed blocks share; a .grad that appears after a pass; a backward that an exception
//             left.
// Threads     autograd may call the hooks on any thread; one mutex guards everything.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/gradients/autograd_hooks.h"
#include "lockstep/parallel/gradients/gradient_arrivals.h"
#include "lockstep/parallel/gradients/parameter_claims.h"
#include "lockstep/parallel/gradients/pass_exchange.h"
#include "lockstep/parallel/zero/bucket_scatter.h"
#include "lockstep/parallel/zero/step_gradients.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep {

class ScatteredGradients : public StepGradients {
 public:
  // As BucketScatter.
  ScatteredGradients(NamedTensors parameters, const ProcessGroup& group, const ShardPlan& plan,
                     const GradientShare& share, const ScatterOptions& options, const std::string& model,
                     Refusal refusal);

  std::optional<std::size_t> first_shared() const override { return claims_.first_shared(); }
  void renew() override;
  std::vector<bool> complete() override;
  void drop() override;
  const at::Tensor& flat(std::size_t number) const override { return scatter_.flat(number); }
  const BucketStore* local() const override { return nullptr; }
  std::size_t bytes() const override { return scatter_.bytes(); }

 private:
  enum class State { IDLE, IN_PASS, FAILED };
  struct Passes {
    State state = State::IDLE;
    int followed = -1;         // autograd's number of the backward whose end is awaited
    std::size_t of_step = 0;   // that have ended since the last drop()
    bool knows_order = false;  // of gradients
    std::string failure = {};  // what ended the backward that failed
  };

  void on_gradient(std::size_t parameter);
  void on_end_of_backward();
  template <typename Body> void guard(const Body& body);
  void refuse_failed() const;
  void begin_pass();
  void start_complete();
  void end_pass();
  void learn_order();
  void expect_fit(std::size_t parameter) const;

  const NamedTensors parameters_;
  const ProcessGroup group_;
  const Refusal refusal_;
  std::mutex mutex_;
  // guarded by mutex_
  ParameterClaims claims_;
  GradientArrivals arrivals_;
  BucketScatter scatter_;
  PassExchange exchange_;
  std::vector<bool> used_;  // by parameter, of the step
  Passes passes_;
  AutogradHooks hooks_;  // goes first: no hook is called after that
};

}  // namespace lockstep
