// ShardedStep: what lies between the last backward of a step and the next forward. Each rank averages its
// parts of the gradients, steps its parts of the parameters, and all ranks have the result.
//
//   ShardedStep step(trained, group, "SimpleCNN");
//   loss.backward();
//   step.begin();                       // all ranks' gradients are there
//   step.parts(3);                      // what the optimiser averages as it goes
//   step.end();                         // all ranks' parts are stepped
//
//              average()                         end()
//   ┌───────┐ ──────────▶ ┌──────────┐ ──────────────────────▶ ┌───────┐
//   │ LOCAL │             │ AVERAGED │   drop(): without a     │ LOCAL │
//   └───────┘ ──────────▶ └──────────┘   step                  └───────┘
//        │     begin()  ┌──────────┐            end()               ▲
//        └────────────▶ │ STEPPING │ ───────────────────────────────┘
//                       └──────────┘
//
// LOCAL     each rank has its own gradients, and may add more
// AVERAGED  a rank's parts of the gradients are averages, in the .grad of its shards: to clip, to unscale, to
//           look at. Parameters have no .grad
// STEPPING  the optimiser takes averages from all ranks' memory
// TORN      a rank failed while ranks wrote, in end() or write(): some values are new and others are not. For
//           good
//
// Memory in common is what STEPPING needs: without it begin() averages. From stage 2 on, backward has
// averaged then (step_gradients.h). On a GPU the optimiser takes averages from .grad.
// Collective  begin(), average(), end(), write().
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/optim/gradient_parts.h"
#include "lockstep/parallel/zero/gradient_meeting.h"
#include "lockstep/parallel/zero/shard_layout.h"
#include "lockstep/parallel/zero/shared_parameters.h"
#include "lockstep/parallel/zero/step_gradients.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep {

struct ShardedForm {
  int stage = 1;      // of ZeRO
  BucketCaps caps;    // of the buckets in which gradients are averaged during backward, from stage 2 on
  UnitOptions units;  // of parameters that are gathered, in stage 3
  SharedParametersOptions parameters = {};
};

class ShardedStep {
 public:
  enum class Stage { LOCAL, AVERAGED, STEPPING, TORN };

  ShardedStep(const NamedTensors& trained, const ProcessGroup& group, const std::string& model,
              const ShardedForm& form);

  Stage stage() const { return stage_; }
  const ShardPlan& plan() const { return plan_; }
  SharedParameters& parameters() { return parameters_; }
  const SharedParameters& parameters() const { return parameters_; }
  StepGradients& gradients() { return *gradients_; }
  const StepGradients& gradients() const { return *gradients_; }
  LeftForwards& left_forwards() { return meeting_.left_forwards(); }  // compared when ranks meet

  // From LOCAL or AVERAGED. Returns when no rank reads the parameters any more. `by_parts`: the optimiser
  // takes parts.
  void begin(bool by_parts);
  // STEPPING: the parts of the gradient of a parameter's shard; null where no rank has one.
  const optim::GradientParts* parts(std::size_t parameter) const;
  void end();
  // The optimiser has thrown in between: the other ranks are told, and the step is torn.
  void fail(const std::string& what);
  // From LOCAL. From AVERAGED it makes .grad what scale() has asked for. square_norm() is that of .grad then.
  void average();
  // AVERAGED: multiplies the averages, at the latest in the pass that steps.
  void scale(double factor);
  // The square of the norm of all ranks' averages, added in the order of one rank's (optim/norms.h).
  double square_norm();
  // The same of each parameter.
  std::vector<double> square_norms();
  // Throws InvalidArgument after a torn step.
  void refuse_torn() const;
  // All gradients go. Not collective, but all ranks do it.
  void drop();
  // Rank 0 calls `write`, and all ranks have what it wrote to the parameters.
  void write(const std::function<void()>& write);

 private:
  struct Count {
    std::uint64_t steps = 0;
    std::uint64_t meetings = 0;  // after which ranks write
    bool is_write = false;       // the last of these was for write()
  };
  std::unique_ptr<StepGradients> make_gradients(const NamedTensors& trained, const std::string& model,
                                                const ShardedForm& form);
  std::optional<std::string> refusal() const;
  std::byte* my_flat(std::size_t bucket) const;
  template <typename Work> void for_my_chunks(const Work& work) const;
  std::string words_of_torn() const;
  template <typename Body> void guard(const Body& body);
  void hold_meeting(const std::function<void()>& meeting);
  void meet(bool by_parts);
  void finish_average();
  void apply_factor();
  void take_factor_along();
  void average_in_place();
  void average_by_messages();
  void take_averages();
  bool steps_on_host() const;  // of parameters on a GPU
  void find_squares();
  void find_squares_on_device();
  std::vector<double> squares_of_all_ranks();

  const ProcessGroup group_;
  const ShardPlan plan_;
  Stage stage_ = Stage::LOCAL;
  SharedParameters parameters_;
  ShardLayout layout_;
  const std::unique_ptr<StepGradients> gradients_;
  GradientMeeting meeting_;
  std::vector<optim::GradientParts> parts_;  // by parameter, of STEPPING
  // By chunk, of this rank's averages; nothing before somebody asks for it.
  std::optional<std::vector<double>> squares_;
  Met met_;
  double factor_ = 1;  // of the averages, not applied yet
  Count count_;
};

}  // namespace lockstep
