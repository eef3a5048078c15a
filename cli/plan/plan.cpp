#include "cli/plan/plan.h"

#include <algorithm>

namespace lockstep::cli {
namespace {

PlanVerdict verdict_of(const PlanQuestion& question, StateForm form, const std::vector<StateRow>& rows) {
  PlanVerdict verdict{.form = form, .last = rows.back().stage};
  const auto fits = [&](const StateRow& row) { return row.total() <= *question.memory; };
  const auto first = std::find_if(rows.begin(), rows.end(), fits);
  if (first != rows.end()) {
    verdict.first = first->stage;
  } else {
    verdict.ranks = ranks_that_fit(question.states, form, verdict.last, *question.memory);
  }
  return verdict;
}

}  // namespace

PlanAnswer answer(const PlanQuestion& question) {
  PlanAnswer plan;
  for (const StateForm form : {StateForm::PRIVATE, StateForm::SHARED}) {
    if (question.form.value_or(form) != form) continue;
    std::vector<StateRow> rows;
    for (const ZeroStage stage : {ZeroStage::DDP, ZeroStage::ONE, ZeroStage::TWO, ZeroStage::THREE}) {
      const bool is_repeated = stage == ZeroStage::DDP && !question.form && form == StateForm::SHARED;
      if (question.stage.value_or(stage) == stage && !is_repeated)
        rows.push_back(state_row(question.states, form, stage));
    }
    if (rows.empty()) continue;
    if (question.memory) plan.verdicts.push_back(verdict_of(question, form, rows));
    plan.rows.insert(plan.rows.end(), rows.begin(), rows.end());
  }
  return plan;
}

bool anything_fits(const PlanAnswer& plan) {
  return plan.verdicts.empty() || std::any_of(plan.verdicts.begin(), plan.verdicts.end(),
                                              [](const auto& verdict) { return verdict.first.has_value(); });
}

}  // namespace lockstep::cli
