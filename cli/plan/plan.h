// The question and the answer of `lockstep plan` (plan_texts.h has the words). Pure.
//
//   PlanQuestion question{.states = {.parameters = 7.5e9, .ranks_per_node = 64}, .memory = 80e9};
//   question.states.bytes = bytes_per_parameter(question.precision, question.optimizer);
//   const PlanAnswer plan = answer(question);
//   plan.rows;                  // bytes a rank of ddp and of stages 1 to 3, in both forms
//   plan.verdicts[0].first;     // stage 1 is the first that fits 80 GB
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/plan/activations.h"
#include "cli/plan/model_states.h"

namespace lockstep::cli {

struct PlanQuestion {
  StateSetting states;  // its activations are those of `transformer`
  StatePrecision precision = PRECISIONS[1];
  StateOptimizer optimizer = OPTIMIZERS[3];
  std::optional<ZeroStage> stage;  // nullopt: all stages
  std::optional<StateForm> form;   // nullopt: both forms
  std::optional<double> memory;    // bytes that a rank has
  std::optional<TransformerShape> transformer;
  Recompute recompute = Recompute::NONE;
  std::string largest_layer;  // the layer whose parameters states.live counts; "" if the user gave the number
};

// The verdict on the rows of one form.
struct PlanVerdict {
  StateForm form = StateForm::PRIVATE;
  std::optional<ZeroStage> first;     // the first of the rows that fits the memory
  ZeroStage last = ZeroStage::THREE;  // the row with the fewest bytes
  // if none fits: the number of ranks with which `last` fits, if there is one
  std::optional<std::int64_t> ranks;
};

struct PlanAnswer {
  std::vector<StateRow> rows;         // data parallelism is in the first form only
  std::vector<PlanVerdict> verdicts;  // one for each form; empty without a memory
};

PlanAnswer answer(const PlanQuestion& question);

// Whether any row fits the memory; true without one.
bool anything_fits(const PlanAnswer& plan);

}  // namespace lockstep::cli
