// StepRunner: carries out this rank's row of a pipeline program: computes, sends and receives in the order of
// the table. Used by pipeline.h.
//
//   StepOutcome outcome = runner.run(program, input);
//
// Weights     BACKWARD_WEIGHTs with nothing else between them are computed together, chunk by chunk.
// Failure     An exception of a part ends the computing of this rank for the step, and is returned. The rank
//             still sends and receives everything (part_messages.h). A rank whose input cannot come is
//             "broken" in the same way, without an exception of its own.
// Throws      only errors of the group.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "lockstep/parallel/pipeline/part_messages.h"
#include "lockstep/parallel/pipeline/part_runner.h"
#include "lockstep/parallel/pipeline/step_report.h"
#include "lockstep/schedules/pipeline_messages.h"
#include "lockstep/schedules/pipeline_timeline.h"

namespace lockstep {

// A rank's row of a program, with the time at which each of its actions begins in the schedule's timeline.
struct RankProgram {
  std::vector<PipelineStep> steps;
  std::vector<double> times;
};
// Without backwards (eval), only the forwards of the schedule remain, in its order.
RankProgram rank_program(const PipelineShape& shape, int rank, bool with_backwards);

struct StepInput {
  StepForm form;
  std::vector<std::vector<at::Tensor>> inputs;  // by micro-batch, on the rank of the first part
  std::vector<PartLoss> losses;                 // by micro-batch, on the rank of the last part
  std::optional<double> count;                  // of all targets, there, if it divides the loss
  bool keeps_outputs = false;
  std::optional<PartFailure> failure;  // this rank failed already, so it computes nothing
};

struct StepOutcome {
  std::optional<PartFailure> failure;
  std::vector<double> losses;         // by micro-batch; 0 where this rank computed none
  std::vector<NamedTensors> outputs;  // of the last part, by micro-batch
  int peak_in_flight = 0;             // of all chunks of this rank
  int peak_activations = 0;
  double seconds_waited = 0;
};

class StepRunner {
 public:
  StepRunner(const ProcessGroup& group, const PipelineShape& shape, const std::vector<PipelineStage>& stages);

  StepOutcome run(const RankProgram& program, StepInput input);
  const std::vector<PartRunner>& parts() const { return parts_; }  // by chunk

 private:
  struct Outgoing {
    NamedTensors values;
    ValueSpecs specs;
    std::vector<at::Tensor> gradients;
  };
  using Key = std::pair<int, int>;  // micro-batch and part, or chunk

  void compute(const PipelineAction& action);
  void forward(const PipelineAction& action, int part);
  void backward(const PipelineAction& action, int part);
  void backward_weights();
  void send(const PipelineMessage& message);
  void hand_on(const PipelineMessage& message, Outgoing outgoing);
  template <typename Act> void attempt(const PipelineAction& action, int part, const Act& act);
  PartRunner& runner(const PipelineAction& action) {
    return parts_.at(static_cast<std::size_t>(action.chunk));
  }
  void note_peaks();
  ForwardKeeps keeps(const PipelineAction& action) const;

  const PipelineShape shape_;
  const int rank_;
  PartMessages messages_;
  std::vector<PartRunner> parts_;
  // Of the present step:
  StepInput input_;
  StepOutcome outcome_;
  std::set<Key> recomputed_;                                          // micro-batch and chunk
  std::map<std::pair<PipelineMessageKind, Key>, Outgoing> outgoing_;  // by micro-batch and sending part
  std::map<int, std::vector<TimedAction>> weights_;                   // BACKWARD_WEIGHTs that wait, by chunk
  bool is_broken_ = false;
  double now_ = 0;  // when the present action begins in the timeline
};

}  // namespace lockstep
