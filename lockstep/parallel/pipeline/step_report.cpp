#include "lockstep/parallel/pipeline/step_report.h"

#include <span>
#include <string>
#include <tuple>

#include "lockstep/base/error.h"
#include "lockstep/base/exception_text.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/all_gather.h"
#include "lockstep/comm/collectives/objects.h"
#include "lockstep/comm/collectives/peer.h"
#include "lockstep/comm/purpose.h"
#include "lockstep/parallel/pipeline/stage_failed.h"

namespace lockstep {
namespace {

// A rank's row: whether it failed, when, in which action, in which part; then its losses.
constexpr std::size_t HEAD = 5;
constexpr double NO_ACTION = -1;

std::vector<double> row_of(const std::optional<PartFailure>& failure, const std::vector<double>& losses) {
  std::vector<double> row(HEAD, 0);
  if (failure) {
    const auto& action = failure->action;
    row = {1, failure->time, action ? static_cast<double>(action->kind) : NO_ACTION,
           action ? static_cast<double>(action->micro_batch) : 0, static_cast<double>(failure->part)};
  }
  row.insert(row.end(), losses.begin(), losses.end());
  return row;
}

std::string_view words_of_kind(PipelineActionKind kind) {
  switch (kind) {
    case PipelineActionKind::FORWARD: return "the forward";
    case PipelineActionKind::RECOMPUTE: return "the recomputed forward";
    case PipelineActionKind::BACKWARD: return "the backward";
    case PipelineActionKind::BACKWARD_INPUT: return "the backward (gradients of the inputs)";
    case PipelineActionKind::BACKWARD_WEIGHT: return "the backward (gradients of the parameters)";
  }
  return "an action";
}

std::string place_of(std::span<const double> row) {
  if (row[2] == NO_ACTION) return "before its first micro-batch";
  return str("in ", words_of_kind(static_cast<PipelineActionKind>(row[2])), " of micro-batch ", row[3],
             " of stage ", row[4]);
}

// The rank whose failure came first; none if all is well.
std::optional<int> first_failed(const std::vector<double>& all, std::size_t width) {
  std::optional<int> first;
  const auto time = [&](int rank) { return all[static_cast<std::size_t>(rank) * width + 1]; };
  for (int rank = 0; rank < static_cast<int>(all.size() / width); ++rank) {
    if (all[static_cast<std::size_t>(rank) * width] == 0) continue;
    if (!first || time(rank) < time(*first)) first = rank;
  }
  return first;
}

}  // namespace

std::vector<double> report_step(const ProcessGroup& group, const std::optional<PartFailure>& failure,
                                const std::vector<double>& losses, int last_rank) {
  const Acting acting(Purpose::PIPELINE);
  const std::vector<double> mine = row_of(failure, losses);
  const std::size_t width = mine.size();
  std::vector<double> all(width * static_cast<std::size_t>(group.size()));
  comm::all_gather(group, std::span<const double>(mine), std::span(all)).wait();
  const auto row = [&](int rank) {
    return std::span<const double>(all).subspan(static_cast<std::size_t>(rank) * width, width);
  };
  const std::optional<int> failed = first_failed(all, width);
  if (!failed) {
    const auto of_last = row(last_rank).subspan(HEAD);
    return {of_last.begin(), of_last.end()};
  }
  const std::vector<std::string> texts =
      comm::all_gather_object(group, failure ? exception_text(failure->error) : std::string());
  if (failure) std::rethrow_exception(failure->error);
  throw StageFailed(str("Pipeline on group \"", group.name(), "\", rank ", group.rank(), " of ", group.size(),
                        ": ", ranks_text(group, {*failed}), " failed ", place_of(row(*failed)), ": ",
                        texts[static_cast<std::size_t>(*failed)],
                        ". The gradients of this step are incomplete on all ranks; call zero_grad() before "
                        "the next step()"),
                    *failed, static_cast<int>(row(*failed)[4]));
}

}  // namespace lockstep
