#include "lockstep/launch/attempts.h"

#include <algorithm>
#include <cerrno>
#include <string>

#include "lockstep/base/exit_code.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/base/str.h"
#include "lockstep/launch/failure_report.h"
#include "lockstep/launch/restart_plan.h"
#include "lockstep/launch/supervisor.h"
#include "lockstep/os/machine.h"
#include "lockstep/os/pipe.h"

namespace lockstep {
namespace {

constexpr std::size_t LONGEST_LINE = 1000;
constexpr std::size_t MOST_NAMED = 8;  // processes on one line

void write_all(const Fd& file, std::string_view text) {
  while (!text.empty()) {
    const long put = write_available(file.get(), text);
    if (put < 0)
      throw SystemError("the record of the failure is not complete: it could not be written", errno);
    text.remove_prefix(static_cast<std::size_t>(put));
  }
}

// Reports processes that outlived their ranks, unless the job failed or was stopped: then this is expected.
void report_left_behind(const RunResult& result, Console& console) {
  if (result.left_behind.empty() || result.first_failure || result.stop_signal != 0) return;
  std::string names;
  const std::size_t count = result.left_behind.size();
  for (std::size_t i = 0; i < std::min(count, MOST_NAMED); ++i)
    names += (names.empty() ? "" : ", ") + result.left_behind[i];
  if (count > MOST_NAMED) names += str(" and ", count - MOST_NAMED, " more");
  console.line("the ranks left processes behind, which were killed: " + names);
}

void report(const PreparedJob& job, const RunResult& result, Console& console) {
  report_left_behind(result, console);
  if (result.end == AttemptEnd::REQUEUE) {
    console.line(str(describe(RestartReason::ASKED_FOR_REQUEUE), " (exit code ", EXIT_REQUEUE, ")"));
    return;
  }
  if (result.stop_signal != 0 && !result.first_failure && result.other_node.empty()) {
    console.line(result.stop_signal == SIGPIPE ? "stopped: " + console.why_broken()
                                               : "stopped by " + signal_name(result.stop_signal));
  }
  if (!result.first_failure && result.other_node.empty()) return;
  const FailureReport failure{job.facts.job_id,     host_name(), job.plan.command,
                              job.facts.log_folder, result,      job.spec.place};
  if (job.logs) {
    try {
      write_all(job.logs->create_file("failure.json"), failure_json(failure));
    } catch (const SystemError& error) {
      console.line(error.what());
    }
  }
  if (!result.other_node.empty()) {
    const bool is_here = result.other_node.starts_with(str("node ", job.spec.place.node, ':'));
    return console.line(str("the job failed", is_here ? "" : " on another machine", ": ",
                            printable(result.other_node, LONGEST_LINE)));
  }
  for (const auto& line : failure_summary(failure)) console.line(line);
  if (!result.of_job.empty()) console.line(printable(result.of_job, LONGEST_LINE));
}

// The first cause in a few words. The failure report before has the details.
std::string cause_in_words(const RunResult& result, const LaunchPlan& plan) {
  if (!result.first_failure) return printable(result.other_node, LONGEST_LINE);
  const RankResult& rank = result.ranks.at(static_cast<std::size_t>(*result.first_failure));
  const CauseKind kind = result.cause ? result.cause->kind : CauseKind::FAILED;
  return str("rank ", plan.first_rank + rank.rank, " ", describe(kind, rank.status));
}

void announce(const PreparedJob& job, Console& console) {
  if (job.facts.restarts == 0) console.line(job.plan.cores.summary);
  if (!job.no_logs.empty())
    console.line(str("no log files: ", job.no_logs, "; --log-dir chooses another place"));
  if (job.logs) console.line("the output of each rank is kept in " + printable(job.logs->path(), 4096));
}

// Decides whether another attempt follows, and prints why. Without --max-restarts it prints nothing.
bool decide(const PreparedJob& job, const RunResult& result, NodeLink* link, Console& console) {
  const int max = job.spec.max_restarts;
  const RestartPlan plan = restart_plan(result.end, job.facts.restarts, max);
  if (max == 0 || plan.step == RestartStep::DONE) return false;
  const bool wished = plan.step == RestartStep::RESTART;
  const NextStart alone = wished ? NextStart::FOLLOWS : NextStart::GIVEN_UP;
  const NextStart next = link != nullptr ? link->agree_on_restart(wished) : alone;
  if (next == NextStart::FOLLOWS) {
    console.line(
        str("restart ", job.facts.restarts + 1, " of ", max, ": ", cause_in_words(result, job.plan)));
    return true;
  }
  RestartReason why = plan.reason;
  if (wished) why = next == NextStart::GIVEN_UP ? RestartReason::ANOTHER_GAVE_UP : RestartReason::STORE_LOST;
  console.line(str("not restarted: ", describe(why),
                   why == RestartReason::RESTARTS_USED_UP ? str(" (", max, " of ", max, ")") : ""));
  return false;
}

struct Outcome {
  int exit_code = EXIT_INTERNAL;
  bool waits_for_reader = true;
};

Outcome run_until_done(PreparedJob& job, const GuardianEnds& ends, SignalQueue& signals, Console& console) {
  std::optional<NodeLink> link;
  if (job.nodes) link.emplace(*job.nodes, std::move(job.stores));
  NodeLink* const others = link ? &*link : nullptr;
  while (true) {
    announce(job, console);
    Supervisor supervisor({job.spec, job.plan, signals, ends.rank_mask, &console,
                           job.logs ? &*job.logs : nullptr, ends.control, ends.standard_input, others});
    const RunResult result = supervisor.run();
    const bool is_well = result.end == AttemptEnd::SUCCEEDED || result.end == AttemptEnd::REQUEUE;
    if (others != nullptr && is_well) others->finish();
    if (result.start_error != 0) {
      console.line(program_error(job.plan.command[0], result.start_error).what());
    } else {
      report(job, result, console);
    }
    if (!decide(job, result, others, console))
      return {.exit_code = result.exit_code, .waits_for_reader = !result.ends_at_once};
    prepare_restart(job);
    fail_point("launch.restart");
  }
}

// Waits for the reader of the output, as any program would. It gives up if the front process is gone or the
// user wants to stop.
void flush(Console& console, int control) {
  for (console.flush(); !console.is_empty(); console.flush()) {
    PollSet wait;
    console.add_to(wait);
    wait.want_read(control);
    wait.run(Deadline::never());
    if (wait.is_ready(control)) return;
  }
}

}  // namespace

int run_attempts(PreparedJob& job, const GuardianEnds& ends, SignalQueue& signals, Console& console) {
  Outcome outcome;
  try {
    outcome = run_until_done(job, ends, signals, console);
  } catch (const std::exception& error) {
    console.line(error.what());
  }
  if (outcome.waits_for_reader) {
    flush(console, ends.control);
  } else {
    console.flush();
  }
  return outcome.exit_code;
}

}  // namespace lockstep
