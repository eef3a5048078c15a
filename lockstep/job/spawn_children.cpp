#include "lockstep/job/spawn_children.h"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/launch/hub_sockets.h"
#include "lockstep/launch/prepare.h"
#include "lockstep/os/open_files.h"
#include "lockstep/os/pipe.h"
#include "lockstep/os/poll_set.h"
#include "lockstep/os/process.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds REPORT_WINDOW{300};
constexpr std::chrono::milliseconds FAILURE_GRACE{500};
// A rank closes its pipe when it ends, and can be reaped a moment later. If a child of the rank holds the
// pipe open, TICK finds the end.
constexpr std::chrono::milliseconds ENDING_TICK{1};
constexpr std::chrono::milliseconds TICK{100};

LaunchPlan plan_of(int ranks) {
  LaunchSpec spec;
  spec.command = {program_file()};
  spec.ranks = ranks;
  spec.log_base = "";
  LaunchPlan plan = prepare_job(spec).plan;
  plan.command = command_line();
  return plan;
}

std::size_t failure_at(const std::string& text) { return text.find_first_of("EL"); }

// Returns whether a rank with this error usually reports another rank's failure: it lost that rank, was told
// that the group has ended, or waited for that rank until the timeout.
bool is_about_another(unsigned code) {
  return code == static_cast<unsigned>(ErrorCode::PEER_LOST) ||
         code == static_cast<unsigned>(ErrorCode::ABORTED) ||
         code == static_cast<unsigned>(ErrorCode::TIMEOUT);
}

// The failure with the smallest number is reported, and among equal ones the earliest. A rank killed by a
// signal comes first: the kernel reports its death only when its memory is freed, and other ranks may have
// noticed and failed before.
int order_of(const std::string& text, const ExitStatus* status) {
  unsigned code = 0;
  const auto at = failure_at(text);
  if (at == std::string::npos) return status != nullptr && status->signal != 0 ? 0 : 1;
  std::from_chars(text.data() + at + 1, text.data() + text.size(), code);
  return is_about_another(code) ? 2 : 1;
}

}  // namespace

SpawnContext::Children::Children(SpawnCall call) : call_(std::move(call)) {
  ensure_standard_descriptors();
  try {
    start();
  } catch (...) {
    stop_all(SIGKILL);
    for (Child& child : children_) wait_exit(child.pid);
    throw;
  }
}

SpawnContext::Children::~Children() {
  if (!any_running()) return;
  state_ = State::STOPPING;
  deadline_ = Deadline::in(FAILURE_GRACE);
  stop_all(SIGTERM);
  while (any_running()) step(Deadline::never());
}

void SpawnContext::Children::start() {
  const auto ranks = static_cast<std::size_t>(call_.ranks);
  const std::string who = str("spawn(", call_.ranks, ") at ", call_.place);
  // For each rank the two ends of a socket and of two pipes, not all at once.
  make_room_for_files(3 * ranks + 4, who);
  require_room_for_files(open_files_of_rank(ranks), str("each rank of ", who));
  const LaunchPlan plan = plan_of(call_.ranks);
  auto hub = make_hub_sockets(call_.ranks);
  std::vector<ChildProcess> starts;
  for (int rank = 0; rank < call_.ranks; ++rank) {
    auto& sockets = hub[static_cast<std::size_t>(rank)];
    Pipe report = make_pipe();
    SpawnRequest request;
    for (const Fd& end : sockets) request.inherited.push_back(end.get());
    request.environment = rank_environment(plan, rank, request.inherited);
    call_.report = report.write.get();
    request.environment.push_back("LOCKSTEP_SPAWN=" + call_.text());
    request.inherited.push_back(call_.report);
    request.executable = plan.executable;
    request.arguments = plan.command;
    request.standard_output = STANDARD_OUTPUT;
    request.standard_error = STANDARD_ERROR;
    request.cpus = plan.cores.cpus[static_cast<std::size_t>(rank)];
    starts.push_back(lockstep::spawn(request));
    children_.push_back({rank, starts.back().pid, std::move(report.read), {}, {}, 0});
    set_nonblocking(children_.back().report.get());
    sockets.clear();
  }
  for (const ChildProcess& child : starts) {
    if (const int error = exec_error(child); error != 0)
      throw SystemError("spawn: cannot start this program again", error);
  }
}

bool SpawnContext::Children::join(Deadline deadline) {
  while (any_running()) {
    if (deadline.expired()) return false;
    step(deadline);
  }
  if (failures_ > 0) throw_first();
  return true;
}

void SpawnContext::Children::step(Deadline deadline) {
  PollSet wait;
  std::chrono::nanoseconds tick = TICK;
  for (const Child& child : children_) {
    if (child.report.valid()) wait.want_read(child.report.get());
    if (!child.report.valid() && !child.status) tick = ENDING_TICK;
  }
  wait.run(Deadline::in(std::min({deadline.remaining(), deadline_.remaining(), tick})));
  for (Child& child : children_) look_at(child);
  advance();
}

void SpawnContext::Children::look_at(Child& child) {
  while (child.report.valid()) {
    const ReadResult result = read_available(child.report.get(), child.text);
    if (result == ReadResult::END) child.report.reset();
    if (result == ReadResult::NOTHING_NOW) break;
  }
  if (!child.status && has_ended(child.pid)) {
    signal_process_group(child.pid, SIGKILL);  // kills the processes that the rank left behind
    child.status = wait_exit(child.pid);
  }
  if (child.failed == 0 && state_ <= State::REPORTING && has_failed(child)) child.failed = ++failures_;
}

bool SpawnContext::Children::has_failed(const Child& child) const {
  if (failure_at(child.text) != std::string::npos) return true;
  return child.status && (!child.status->success() || child.text.empty());
}

void SpawnContext::Children::advance() {
  if (state_ == State::RUNNING && failures_ > 0) {
    state_ = State::REPORTING;
    deadline_ = Deadline::in(REPORT_WINDOW);
  } else if (state_ == State::REPORTING && deadline_.expired()) {
    state_ = State::STOPPING;
    deadline_ = Deadline::in(FAILURE_GRACE);
    stop_all(SIGTERM);
    stop_all(SIGCONT);  // a stopped process acts on a signal only when it continues
  } else if (state_ == State::STOPPING && deadline_.expired()) {
    state_ = State::KILLING;
    deadline_ = Deadline::never();
    stop_all(SIGKILL);
  }
}

void SpawnContext::Children::stop_all(int signal) const {
  for (const Child& child : children_) {
    if (!child.status) signal_process_group(child.pid, signal);
  }
}

bool SpawnContext::Children::any_running() const {
  return std::any_of(children_.begin(), children_.end(), [](const Child& child) { return !child.status; });
}

std::vector<pid_t> SpawnContext::Children::pids() const {
  std::vector<pid_t> pids;
  for (const Child& child : children_) pids.push_back(child.pid);
  return pids;
}

void SpawnContext::Children::throw_first() const {
  const auto key = [](const Child& child) {
    constexpr int NOT_FAILED = 3;
    const int order = child.failed == 0 ? NOT_FAILED : order_of(child.text, &*child.status);
    return std::pair(order, child.failed);
  };
  const auto first =
      std::min_element(children_.begin(), children_.end(),
                       [&](const Child& left, const Child& right) { return key(left) < key(right); });
  throw SpawnError(str("spawn: rank ", first->rank, " of ", call_.ranks, " (pid ", first->pid, ") ",
                       what_happened(*first)),
                   first->rank, first->pid);
}

std::string SpawnContext::Children::what_happened(const Child& child) const {
  const auto at = failure_at(child.text);
  if (at != std::string::npos && child.text[at] == SPAWN_LOST) {
    return "took another path: " + child.text.substr(at + 1) +
           "; every rank replays main, which must come to the same calls of spawn() each time";
  }
  if (at != std::string::npos) return "threw " + child.text.substr(child.text.find(':', at) + 1);
  const std::string ending =
      child.status->signal != 0 ? "was " + describe(*child.status) : "ended with " + describe(*child.status);
  if (!child.text.empty() || child.status->signal != 0) return ending;
  return ending + " before it came to the call at " + call_.place +
         "; every rank replays main, which must come to the same calls of spawn() each time";
}

}  // namespace lockstep
