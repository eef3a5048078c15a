// Supervisor: runs the ranks of one job on this machine from start to end. It starts them, passes their
// output on, notices deaths, stops the other ranks, and leaves no process behind. It is one thread with one
// loop over poll(), and every wait has an end.
//
//            all started         a rank fails            300 ms              grace
//   STARTING ───────────▶ RUNNING ──────────▶ REPORTING ───────▶ STOPPING ─────────▶ KILLING ──────────▶ DONE
//                            │ a stop signal ─────────────────▶     ▲                   ▲   nothing is left
//                            │ the last rank has ended ─────────────┼───────────────────┤
//                            └─ time limit, second stop signal, the launcher was killed ┘
//
// REPORTING  no rank gets a signal: the survivors notice the death themselves, report it, and end.
// STOPPING   every rank's process group got SIGTERM, or the signal that the launcher got.
// KILLING    SIGKILL to the groups of the ranks, then to all descendants of this process, until none is left.
//
// A job that may be restarted stays RUNNING after its last rank here has ended well, until the ranks of the
// other machines have ended too. If ranks fail there, the ranks here start again.
#pragma once

#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/launch/console.h"
#include "lockstep/launch/launch_plan.h"
#include "lockstep/launch/launch_spec.h"
#include "lockstep/launch/node_group.h"
#include "lockstep/launch/rank_process.h"
#include "lockstep/os/failure_note.h"
#include "lockstep/os/fd.h"
#include "lockstep/os/oom_kills.h"
#include "lockstep/os/poll_set.h"
#include "lockstep/os/private_folder.h"
#include "lockstep/os/signal_queue.h"

namespace lockstep {

// The supervisor's inputs. All of them must outlive it.
struct SupervisorSetting {
  const LaunchSpec& spec;
  const LaunchPlan& plan;
  SignalQueue& signals;        // reports SIGCHLD
  const sigset_t& rank_mask;   // the signals that the ranks have blocked
  Console* console = nullptr;  // null: output is kept in RankResult::output
  const PrivateFolder* logs = nullptr;
  int control = -1;  // the front's messages, one signal number per byte; end of file: the front is gone
  int standard_input = -1;   // of rank 0
  NodeLink* link = nullptr;  // to the launchers of other machines
};

class Supervisor {
 public:
  explicit Supervisor(const SupervisorSetting& setting);

  // Blocks until the job and all its processes have ended. Throws SystemError.
  RunResult run();

 private:
  enum class State { STARTING, RUNNING, REPORTING, STOPPING, KILLING, DONE };
  using Clock = std::chrono::steady_clock;

  void start_ranks();
  RankStart start_of(int rank, const std::vector<Fd>& hub_ends, const Fd& secret) const;
  Fd make_log(int rank) const;  // invalid if there is no log
  void step();
  void note_starts(const PollSet& wait);
  void read_control(const PollSet& wait);
  void obey(int signal);
  void stop_ranks(int signal);
  void signal_rank_processes(int signal) const;
  void note_deaths(const PollSet& wait);
  std::vector<pid_t> not_to_reap() const;
  void note_death(RankProcess& rank);
  void read_notes();
  void tell_nodes(const NodeFailure& mine);
  void hear_nodes(const PollSet& wait);
  void hear(const NodeFailure& failure);
  void enter(State next, Deadline deadline);
  void begin_stopping();
  void note_failure();
  void advance();
  void kill_round();
  void finish();
  void on_output(int rank, Stream stream, std::string_view text);
  void signal_ranks(int signal) const;
  void find_cause();
  std::vector<RankEnd> rank_ends() const;
  bool any_failed() const;
  bool all_ended() const;
  bool waits_for_nodes();
  bool asks_for_requeue() const;
  AttemptEnd attempt_end() const;
  int exit_code() const;

  // Constant after construction.
  SupervisorSetting setting_;
  Clock::time_point start_;
  std::vector<pid_t> not_ours_;  // children that this process had before
  RankProcess::OnOutput on_output_;

  State state_ = State::STARTING;
  Deadline deadline_ = Deadline::never();  // of the current state
  Deadline time_limit_;
  std::optional<Clock::time_point> held_since_;  // set while the user has stopped the ranks (Ctrl-Z)
  Deadline next_look_ =
      Deadline::in(std::chrono::seconds(0));  // the next check for deaths, in case no signal reports them
  bool front_is_gone_ = false;
  bool was_asked_to_stop_ = false;  // by a signal to this launcher
  bool is_launcher_lost_ = false;   // the launcher of another machine, or the store, is gone
  bool told_well_ = false;          // the other launchers know that the ranks here have ended well
  // This launcher sent the ranks a signal, so ranks that end from now on count as stopped.
  bool was_told_to_stop_ = false;
  std::vector<std::unique_ptr<RankProcess>> ranks_;
  FailureNotes notes_;
  OomKills oom_kills_before_;
  std::vector<int> deaths_;  // the ranks that have ended, by their numbers on this machine, in order
  // Failures that ranks report from then on may be a consequence of the stop.
  Clock::time_point stopped_at_ = Clock::time_point::max();
  std::set<pid_t> seen_behind_;
  std::optional<int> alarm_;  // a node that reported the failure of one of its ranks
  int cause_code_ = 0;        // the exit code of the job's first cause
  RunResult result_;
};

}  // namespace lockstep
