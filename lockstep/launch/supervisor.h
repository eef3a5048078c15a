// Runs the ranks of one job on this machine from start to end: starts them, carries their output, notices
// deaths, stops the others, and leaves nothing behind. One thread, one loop over poll(), every wait with an
// end.
//
//            all started         a rank fails            300 ms              grace
//   STARTING ───────────▶ RUNNING ──────────▶ REPORTING ───────▶ STOPPING ─────────▶ KILLING ──────────▶ DONE
//                            │ a stop signal ─────────────────▶     ▲                   ▲   nothing is left
//                            │ the last rank has ended ─────────────┼───────────────────┤
//                            └─ time limit, second stop signal, the launcher was killed ┘
//
// REPORTING  nobody is told anything: the survivors notice the death themselves, say so, and end.
// STOPPING   every rank's process group got SIGTERM, or the signal that the launcher got.
//            A job that may be restarted stays RUNNING after its last rank here has ended well, until those
//            of the other machines have: a failure there starts the ranks here again.
// KILLING    SIGKILL to the groups of the ranks, then to everything that descends from this process, until
//            there is none.
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

// What the supervisor works with; all of it outlives the supervisor.
struct SupervisorSetting {
  const LaunchSpec& spec;
  const LaunchPlan& plan;
  SignalQueue& signals;        // reports SIGCHLD
  const sigset_t& rank_mask;   // blocked signals of the ranks
  Console* console = nullptr;  // null: output is kept in RankResult::output
  const PrivateFolder* logs = nullptr;
  int control = -1;          // the front's messages, one signal number a byte; end of file: the front is gone
  int standard_input = -1;   // of rank 0
  NodeLink* link = nullptr;  // to the launchers of other machines
};

class Supervisor {
 public:
  explicit Supervisor(const SupervisorSetting& setting);

  // Blocks until the job has ended and nothing of it lives. Fails: SystemError.
  RunResult run();

 private:
  enum class State { STARTING, RUNNING, REPORTING, STOPPING, KILLING, DONE };
  using Clock = std::chrono::steady_clock;

  void start_ranks();
  RankStart start_of(int rank, const std::vector<Fd>& hub_ends, const Fd& secret) const;
  Fd make_log(int rank) const;  // invalid: none
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
  Deadline deadline_ = Deadline::never();  // of the state
  Deadline time_limit_;
  std::optional<Clock::time_point> held_since_;  // the ranks are stopped by the user
  Deadline next_look_ = Deadline::in({});        // for deaths, should nobody tell of them
  bool front_is_gone_ = false;
  bool was_asked_to_stop_ = false;  // by a signal to this launcher
  bool is_launcher_lost_ = false;   // another machine's, or the store
  bool told_well_ = false;          // the other launchers know that the ranks here have ended well
  bool was_told_to_stop_ = false;   // the ranks got a signal from here: what ends from now on was stopped
  std::vector<std::unique_ptr<RankProcess>> ranks_;
  FailureNotes notes_;
  OomKills oom_kills_before_;
  std::vector<int> deaths_;  // the ranks that have ended, by their numbers here, in order
  Clock::time_point stopped_at_ =
      Clock::time_point::max();  // what ranks tell from then on may come from that
  std::set<pid_t> seen_behind_;
  std::optional<int> alarm_;  // a node that said that a rank of it has failed
  int cause_code_ = 0;        // the exit code of the job's first cause
  RunResult result_;
};

}  // namespace lockstep
