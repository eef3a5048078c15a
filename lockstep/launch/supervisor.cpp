#include "lockstep/launch/supervisor.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/base/str.h"
#include "lockstep/launch/hub_sockets.h"
#include "lockstep/os/descendants.h"
#include "lockstep/os/pipe.h"
#include "lockstep/os/process_table.h"

namespace lockstep {
namespace {

constexpr std::chrono::seconds UNKILLABLE_AFTER{10};
constexpr std::chrono::milliseconds KILL_TICK{2};
// Deaths are also checked for periodically: in a process with several threads, another thread may take the
// SIGCHLD.
constexpr std::chrono::milliseconds IDLE_TICK{100};
constexpr std::size_t LONGEST_OUTPUT = 4U << 20U;

}  // namespace

Supervisor::Supervisor(const SupervisorSetting& setting)
    : setting_(setting),
      start_(Clock::now()),
      not_ours_(children_of_this_process()),
      on_output_([this](int rank, Stream stream, std::string_view text) { on_output(rank, stream, text); }),
      time_limit_(Deadline::in(setting.spec.time_limit)),
      oom_kills_before_(oom_kills()) {
  result_.ranks.resize(static_cast<std::size_t>(setting.spec.ranks));
}

RunResult Supervisor::run() {
  try {
    start_ranks();
    while (state_ != State::DONE) step();
  } catch (...) {
    signal_ranks(SIGKILL);
    kill_all_children(not_ours_, UNKILLABLE_AFTER);
    throw;
  }
  finish();
  return std::move(result_);
}

void Supervisor::start_ranks() {
  auto hub = make_hub_sockets(setting_.plan.has_hub ? setting_.spec.ranks : 1);
  hub.resize(static_cast<std::size_t>(setting_.spec.ranks));
  const Fd secret = setting_.link != nullptr ? setting_.link->secret().to_descriptor() : Fd();
  for (int rank = 0; rank < setting_.spec.ranks; ++rank) {
    fail_point("launch.before_rank");
    const RankStart start = start_of(rank, hub[static_cast<std::size_t>(rank)], secret);
    ranks_.push_back(std::make_unique<RankProcess>(rank, start, make_log(rank)));
    hub[static_cast<std::size_t>(rank)].clear();
    RankResult& result = result_.ranks[static_cast<std::size_t>(rank)];
    result.rank = rank;
    result.pid = ranks_.back()->pid();
  }
  enter(State::RUNNING, Deadline::never());
  fail_point("launch.running");
}

Fd Supervisor::make_log(int rank) const {
  if (setting_.logs == nullptr) return Fd();
  try {
    return setting_.logs->create_file(str("rank", setting_.plan.first_rank + rank, ".log"));
  } catch (const SystemError& error) {  // a job runs without a log that cannot be written
    if (setting_.console != nullptr) setting_.console->line(error.what());
    return Fd();
  }
}

RankStart Supervisor::start_of(int rank, const std::vector<Fd>& hub_ends, const Fd& secret) const {
  RankStart start;
  for (const auto& end : hub_ends) start.inherited.push_back(end.get());
  start.executable = setting_.plan.executable;
  start.command = rank_command(setting_.plan, rank);
  start.environment = rank_environment(setting_.plan, rank, start.inherited);
  start.inherited.push_back(notes_.for_ranks());
  start.environment.push_back(notes_.variable());
  if (secret.valid()) {
    start.inherited.push_back(secret.get());
    start.environment.push_back(str("LOCKSTEP_SECRET_FD=", secret.get()));
  }
  start.cpus = setting_.plan.cores.cpus[static_cast<std::size_t>(rank)];
  start.standard_input = setting_.plan.first_rank + rank == 0 ? setting_.standard_input : -1;
  start.signal_mask = &setting_.rank_mask;
  if (!setting_.spec.streams.empty())
    start.kept = setting_.spec.streams.at(static_cast<std::size_t>(rank)).kept;
  return start;
}

void Supervisor::step() {
  PollSet wait;
  wait.want_read(setting_.signals.descriptor());
  if (setting_.control >= 0 && !front_is_gone_) wait.want_read(setting_.control);
  const bool is_congested = setting_.console != nullptr && setting_.console->is_congested();
  if (!is_congested) {
    for (const auto& rank : ranks_) rank->add_to(wait);
  }
  if (setting_.console != nullptr) setting_.console->add_to(wait);
  wait.want_read(notes_.descriptor());
  if (setting_.link != nullptr && setting_.link->descriptor() >= 0)
    wait.want_read(setting_.link->descriptor());
  const auto tick = state_ == State::KILLING ? KILL_TICK : IDLE_TICK;
  wait.run(Deadline::in(
      std::min({deadline_.remaining(), time_limit_.remaining(), std::chrono::nanoseconds(tick)})));

  // While the user holds the ranks (Ctrl-Z), the clock stands still, so that no grace period and no limit
  // ends.
  if (held_since_) running_time.slept(*held_since_, {}, Clock::now());
  read_notes();
  read_control(wait);
  note_starts(wait);
  for (const auto& rank : ranks_) rank->read_output(wait, on_output_);
  if (setting_.console != nullptr) setting_.console->flush();
  note_deaths(wait);
  hear_nodes(wait);
  advance();
}

void Supervisor::note_starts(const PollSet& wait) {
  for (auto& rank : ranks_) {
    const auto error = rank->start_error(wait);
    if (!error || result_.start_error != 0) continue;
    result_.start_error = *error;
    enter(State::KILLING, Deadline::in(UNKILLABLE_AFTER));
  }
}

void Supervisor::read_control(const PollSet& wait) {
  if (setting_.control < 0 || front_is_gone_ || !wait.is_ready(setting_.control)) return;
  std::string signals;
  const ReadResult result = read_available(setting_.control, signals);
  for (const char signal : signals) obey(signal);
  if (result != ReadResult::END) return;
  front_is_gone_ = true;
  const int node = setting_.spec.place.node;
  tell_nodes(
      {.node = node, .exit_code = 128 + SIGKILL, .what = str("the launcher of node ", node, " was killed")});
  enter(State::KILLING, Deadline::in(UNKILLABLE_AFTER));
}

void Supervisor::obey(int signal) {
  if (signal == SIGTSTP && !held_since_) held_since_ = Clock::now();
  if (signal == SIGTSTP) return signal_ranks(SIGSTOP);
  if (signal == SIGUSR1 || signal == SIGUSR2) return signal_rank_processes(signal);
  held_since_.reset();
  if (signal == SIGCONT) return signal_ranks(signal);
  const bool is_first = !std::exchange(was_asked_to_stop_, true);
  // Another launcher was asked before, and its grace period runs.
  if (is_first && result_.stop_signal != 0) return;
  // This is the second signal, or a failure is being handled.
  if (state_ != State::STARTING && state_ != State::RUNNING) {
    enter(State::KILLING, Deadline::in(UNKILLABLE_AFTER));
    return;
  }
  tell_nodes({.node = setting_.spec.place.node,
              .exit_code = 128 + signal,
              .what = "the launcher was stopped by " + signal_name(signal),
              .signal = signal == SIGPIPE ? SIGTERM : signal});
  stop_ranks(signal);
}

void Supervisor::stop_ranks(int signal) {
  result_.stop_signal = signal;
  begin_stopping();
  enter(State::STOPPING, Deadline::in(setting_.spec.stop_grace));
  if (setting_.console != nullptr && signal != SIGPIPE) {
    const double grace = std::chrono::duration<double>(setting_.spec.stop_grace).count();
    setting_.console->line(str("stopping: every rank got ", signal_name(signal), " and has ", grace,
                               " s to end; a second signal ends everything at once"));
  }
  signal_ranks(signal == SIGPIPE ? SIGTERM : signal);
  signal_ranks(SIGCONT);  // a stopped process acts on a signal only when it continues
}

void Supervisor::note_deaths(const PollSet& wait) {
  const bool is_told = wait.is_ready(setting_.signals.descriptor());
  if (!is_told && !next_look_.expired()) return;
  next_look_ = Deadline::in(IDLE_TICK);
  // If several deaths share one SIGCHLD, the kernel names the first. It is noted before the rest.
  while (const auto signal = setting_.signals.next()) {
    for (auto& rank : ranks_) {
      if (rank->pid() == signal->sender) note_death(*rank);
    }
  }
  for (auto& rank : ranks_) note_death(*rank);
  reap_children(not_to_reap());
}

std::vector<pid_t> Supervisor::not_to_reap() const {
  std::vector<pid_t> keep = not_ours_;
  for (const auto& rank : ranks_) {
    if (!rank->has_ended()) keep.push_back(rank->pid());
  }
  return keep;
}

void Supervisor::note_death(RankProcess& rank) {
  const auto status = rank.poll();
  if (!status) return;
  RankResult& result = result_.ranks[static_cast<std::size_t>(rank.rank())];
  result.status = *status;
  result.ended_after = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start_);
  result.was_stopped = was_told_to_stop_;
  if (status->signal == SIGKILL && !was_told_to_stop_)
    result.killer = who_killed(oom_kills_before_, oom_kills());
  deaths_.push_back(rank.rank());
}

// Called before the ranks get a signal of this launcher. Their ends from now on are not failures of their
// own.
void Supervisor::begin_stopping() {
  if (std::exchange(was_told_to_stop_, true)) return;
  stopped_at_ = Clock::now();
  if (all_ended()) return;
  const std::vector<ProcessEntry> processes = all_processes();
  for (const auto& rank : ranks_) {
    if (!rank->has_ended())
      result_.ranks[static_cast<std::size_t>(rank->rank())].stood_still =
          is_any_stopped(rank->pid(), processes);
  }
}

void Supervisor::enter(State next, Deadline deadline) {
  // KILLING cannot be left, and its deadline must not start again.
  if (state_ == State::KILLING || state_ == State::DONE) return;
  state_ = next;
  deadline_ = deadline;
  if (next == State::STOPPING) fail_point("launch.stopping");
  if (next != State::KILLING) return;
  begin_stopping();
  signal_ranks(SIGKILL);
  fail_point("launch.killing");
}

void Supervisor::note_failure() {
  if (!setting_.spec.stop_on_failure || !any_failed()) return;
  tell_nodes({.node = setting_.spec.place.node});
  enter(State::REPORTING, Deadline::in(setting_.spec.report_window));
}

void Supervisor::advance() {
  // Also for the last rank here, because the other nodes must hear of the failure.
  if (state_ == State::RUNNING) note_failure();
  const bool is_over = all_ended();
  if (state_ != State::KILLING && state_ != State::DONE) {
    if (time_limit_.expired() && !is_over) {
      result_.timed_out = true;
      return enter(State::KILLING, Deadline::in(UNKILLABLE_AFTER));
    }
    if (is_over && !waits_for_nodes()) return enter(State::KILLING, Deadline::in(UNKILLABLE_AFTER));
  }
  switch (state_) {
    case State::RUNNING:
      if (setting_.console != nullptr && setting_.console->is_broken()) obey(SIGPIPE);
      break;
    case State::REPORTING:
      if (!deadline_.expired()) break;
      begin_stopping();
      enter(State::STOPPING, Deadline::in(setting_.spec.failure_grace));
      signal_ranks(SIGTERM);
      signal_ranks(SIGCONT);
      break;
    case State::STOPPING:
      if (deadline_.expired()) enter(State::KILLING, Deadline::in(UNKILLABLE_AFTER));
      break;
    case State::KILLING: kill_round(); break;
    case State::STARTING:
    case State::DONE: break;
  }
}

// Kills one generation of descendants per call. It first notes their names, because a dead process soon loses
// its name. Ends when none is left, or at the deadline.
void Supervisor::kill_round() {
  const std::vector<pid_t> keep = not_to_reap();
  for (const pid_t pid : children_of_this_process()) {
    if (std::find(keep.begin(), keep.end(), pid) != keep.end() || !seen_behind_.insert(pid).second) continue;
    result_.left_behind.push_back(str(process_name(pid), " (pid ", pid, ")"));
  }
  const std::vector<pid_t> left = kill_children(keep);
  if (left.empty() && all_ended()) {
    state_ = State::DONE;
  } else if (deadline_.expired()) {
    state_ = State::DONE;
    std::string pids;
    for (const pid_t pid : left) pids += str(" ", pid);
    for (const auto& rank : ranks_) {
      if (!rank->has_ended()) pids += str(" ", rank->pid());
    }
    if (setting_.console != nullptr)
      setting_.console->line("the kernel does not end these processes:" + pids);
  }
}

void Supervisor::finish() {
  for (auto& rank : ranks_) {
    rank->drain_output(on_output_);
    RankResult& result = result_.ranks[static_cast<std::size_t>(rank->rank())];
    result.last_lines = rank->last_lines();
    if (rank->log_error() != 0 && setting_.console != nullptr) {
      const SystemError why(str("the log of rank ", setting_.plan.first_rank + rank->rank(),
                                " is not complete, it could not be written"),
                            rank->log_error());
      setting_.console->line(why.what());
    }
  }
  read_notes();
  find_cause();
  result_.end = attempt_end();
  result_.exit_code = exit_code();
  fail_point("launch.drained");
}

void Supervisor::on_output(int rank, Stream stream, std::string_view text) {
  if (setting_.console != nullptr) {
    const auto& streams = setting_.spec.streams;
    const int shown = streams.empty() ? StreamChoice::BOTH : streams.at(static_cast<std::size_t>(rank)).shown;
    if ((shown & (stream == Stream::OUT ? StreamChoice::OUT : StreamChoice::ERR)) == 0) return;
    if (text.empty()) {
      setting_.console->close(rank, stream);
    } else {
      setting_.console->feed(rank, stream, text);
    }
    return;
  }
  std::string& output = result_.ranks[static_cast<std::size_t>(rank)].output;
  output += text;
  if (output.size() > 2 * LONGEST_OUTPUT) output.erase(0, output.size() - LONGEST_OUTPUT);
}

void Supervisor::signal_ranks(int signal) const {
  for (const auto& rank : ranks_) rank->signal_group(signal);
}

// Only the rank itself: its helpers (data loaders, commands that it runs) have no handler for these signals,
// and would die.
void Supervisor::signal_rank_processes(int signal) const {
  for (const auto& rank : ranks_) {
    if (!rank->has_ended()) signal_process(rank->pid(), signal);
  }
}

bool Supervisor::all_ended() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->has_ended(); });
}

// Returns whether all ranks here have ended well while a failure on another machine could still restart them.
bool Supervisor::waits_for_nodes() {
  if (setting_.link == nullptr || setting_.spec.max_restarts == 0 || state_ != State::RUNNING || any_failed())
    return false;
  if (!std::exchange(told_well_, true)) setting_.link->note_ended_well();
  return !setting_.link->have_others_ended_well() && setting_.link->descriptor() >= 0;
}

bool Supervisor::asks_for_requeue() const {
  const auto ended_well = [](const RankResult& rank) { return is_well(rank.status); };
  const auto asks = [](const RankResult& rank) { return rank.status.code == EXIT_REQUEUE; };
  return std::all_of(result_.ranks.begin(), result_.ranks.end(), ended_well) &&
         std::any_of(result_.ranks.begin(), result_.ranks.end(), asks);
}

AttemptEnd Supervisor::attempt_end() const {
  if (result_.start_error != 0) return AttemptEnd::NOT_STARTED;
  if (result_.timed_out) return AttemptEnd::TIMED_OUT;
  if (asks_for_requeue() && !result_.first_failure && !is_launcher_lost_) return AttemptEnd::REQUEUE;
  if (was_asked_to_stop_ || front_is_gone_ || result_.stop_signal != 0) return AttemptEnd::STOPPED;
  if (is_launcher_lost_) return AttemptEnd::LAUNCHER_LOST;
  return result_.first_failure || !result_.other_node.empty() ? AttemptEnd::RANK_FAILED
                                                              : AttemptEnd::SUCCEEDED;
}

int Supervisor::exit_code() const {
  if (result_.start_error != 0) return result_.start_error == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
  if (result_.timed_out) return EXIT_TIMED_OUT;
  if (result_.end == AttemptEnd::REQUEUE) return EXIT_REQUEUE;
  if (!result_.other_node.empty() || result_.first_failure) return cause_code_ != 0 ? cause_code_ : 1;
  return result_.stop_signal != 0 ? 128 + result_.stop_signal : 0;
}

}  // namespace lockstep
