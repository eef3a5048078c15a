// Supervisor: reads the failures that the ranks and the other machines' launchers report, and finds the first
// cause.
#include <algorithm>

#include "lockstep/base/str.h"
#include "lockstep/launch/failure_report.h"
#include "lockstep/launch/job_cause.h"
#include "lockstep/launch/supervisor.h"
#include "lockstep/os/machine.h"

namespace lockstep {

// Called first in each step, and once more at the end: a rank reports its failure before it ends.
void Supervisor::read_notes() {
  const NodePlace& place = setting_.spec.place;
  const int world_size = place.world_size > 0 ? place.world_size : setting_.spec.ranks;
  for (const FailureNote& note : notes_.read()) {
    const int local = note.rank - setting_.plan.first_rank;
    if (local < 0 || local >= setting_.spec.ranks || note.at > stopped_at_) continue;
    auto& told = result_.ranks[static_cast<std::size_t>(local)].told;
    told.reset();
    if (note.code == ErrorCode::NONE) continue;
    const bool is_rank = note.culprit >= 0 && note.culprit < world_size;
    told = {note.code, is_rank ? note.culprit : FailureNote::SOMEBODY,
            std::chrono::duration_cast<std::chrono::milliseconds>(note.at - start_)};
  }
}

// `what` is empty for a failed rank: the first cause is found when all ranks have ended.
void Supervisor::tell_nodes(const NodeFailure& mine) {
  if (setting_.link == nullptr || !result_.other_node.empty()) return;
  const NodeFailure first = setting_.link->report(mine);
  if (first.node != mine.node) hear(first);
}

void Supervisor::hear(const NodeFailure& failure) {
  if (failure.what.empty()) {
    alarm_ = failure.node;
    return;
  }
  result_.other_node = str("node ", failure.node, ": ", failure.what);
  cause_code_ = failure.exit_code;
  is_launcher_lost_ = failure.signal == 0;
}

// If the launcher of another machine was asked to stop, the ranks here get the same signal and the same
// grace. So a job saves its state on all machines or on none.
void Supervisor::hear_nodes(const PollSet& wait) {
  const auto news = setting_.link != nullptr ? setting_.link->news(wait) : std::nullopt;
  if (!news || !result_.other_node.empty() || any_failed()) return;
  hear(*news);
  if (state_ != State::RUNNING) return;
  if (news->signal != 0 && !news->what.empty()) return stop_ranks(news->signal);
  enter(State::REPORTING, Deadline::in(setting_.spec.report_window));
}

// On one machine, the ends of its own ranks suffice. On several machines, the launchers whose ranks failed,
// or that heard of a failed rank, agree on one cause. A launcher that already knows the failure, or knows of
// none, only publishes its ranks' ends.
void Supervisor::find_cause() {
  if (result_.start_error != 0) return;
  const int first_rank = setting_.plan.first_rank;
  const std::vector<RankEnd> ends = rank_ends();
  std::optional<FirstCause> cause;
  if (setting_.link == nullptr) {
    cause = first_cause(ends);
  } else if (!result_.other_node.empty() || (!alarm_ && !any_failed())) {
    setting_.link->publish(pack_ends(ends));
  } else {
    const auto found =
        find_job_cause(*setting_.link, setting_.spec.place.node, ends, [&](const FirstCause& of) {
          return failure_in_a_line(result_.ranks.at(static_cast<std::size_t>(of.rank - first_rank)), of,
                                   host_name());
        });
    cause_code_ = found ? found->exit_code : 1;
    is_launcher_lost_ = found && found->is_launcher_gone;
    if (!found || !found->is_here) {
      result_.other_node = found ? found->line
                                 : str("node ", alarm_.value_or(0),
                                       ": a rank failed there, and its launcher did not report why");
      return;
    }
    result_.of_job = found->line;
    result_.cause = found->cause;
    result_.first_failure = found->cause.rank - first_rank;
    return;
  }
  if (!cause) return;
  result_.cause = cause;
  result_.first_failure = cause->rank - first_rank;
  cause_code_ = exit_code_of(*cause, ends);
}

std::vector<RankEnd> Supervisor::rank_ends() const {
  std::vector<RankEnd> ends;
  for (const int local : deaths_) {
    const RankResult& rank = result_.ranks[static_cast<std::size_t>(local)];
    ends.push_back({setting_.plan.first_rank + local, rank.status, rank.was_stopped, rank.stood_still,
                    rank.ended_after, rank.told});
  }
  return ends;
}

bool Supervisor::any_failed() const {
  return std::any_of(deaths_.begin(), deaths_.end(), [this](int local) {
    const RankResult& rank = result_.ranks[static_cast<std::size_t>(local)];
    return !is_well(rank.status) && !rank.was_stopped;
  });
}

}  // namespace lockstep
