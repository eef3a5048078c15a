#include "testing/ranks_processes.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <thread>

#include "lockstep/base/deadline.h"
#include "lockstep/base/str.h"
#include "lockstep/os/machine.h"
#include "testing/fork_server.h"

namespace lockstep::harness {
namespace {

constexpr std::string_view CHILD_ARGUMENT = "--ranks-child=";
constexpr std::size_t OUTPUT_KEPT = 8000;  // bytes of a rank's output
constexpr auto GRACE = std::chrono::seconds(10);

void check(bool ok, const char* what) {
  if (!ok) throw std::system_error(errno, std::generic_category(), what);
}

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() { close(); }
  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_;
};

std::pair<Fd, Fd> make_pipe() {
  int ends[2];
  check(pipe2(ends, O_CLOEXEC) == 0, "pipe2");
  return {Fd(ends[0]), Fd(ends[1])};
}

// The star of the launcher's contract: rank 0 holds centre[r - 1], rank r holds leaf[r - 1].
struct Star {
  std::vector<Fd> centre, leaf;
};

Star make_star(int ranks) {
  Star star;
  for (int r = 1; r < ranks; ++r) {
    int ends[2];
    check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0, "socketpair");
    star.centre.emplace_back(ends[0]);
    star.leaf.emplace_back(ends[1]);
  }
  return star;
}

std::vector<int> hub_fds(const Star& star, int rank) {
  std::vector<int> fds;
  if (rank > 0) return {star.leaf[static_cast<std::size_t>(rank) - 1].get()};
  for (const Fd& fd : star.centre) fds.push_back(fd.get());
  return fds;
}

bool is_ours(std::string_view entry) {
  constexpr std::string_view NAMES[] = {
      "RANK=",        "WORLD_SIZE=",          "LOCAL_RANK=", "LOCAL_WORLD_SIZE=", "MASTER_ADDR=",
      "MASTER_PORT=", "TORCHELASTIC_RUN_ID=", "GTEST_",      "LOCKSTEP_"};
  if (entry.starts_with("LOCKSTEP_DATA=")) return false;
  return std::any_of(std::begin(NAMES), std::end(NAMES), [&](auto name) { return entry.starts_with(name); });
}

// This process's environment without what concerns jobs, and with what the launcher would say.
std::vector<std::string> environment_of(const ProcessesPlan& plan, int rank, const std::vector<int>& hub) {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!is_ours(*entry)) entries.emplace_back(*entry);
  }
  if (std::getenv("OMP_NUM_THREADS") == nullptr) {  // NOLINT(concurrency-mt-unsafe): nothing here sets it
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    entries.push_back(str("OMP_NUM_THREADS=", std::max(1, cores / plan.ranks)));
  }
  for (const auto& [name, value] : plan.variables) entries.push_back(str(name, "=", value));
  if (plan.processes < 2 && plan.ranks > 1) return entries;  // ranks are threads
  for (const auto* name : {"RANK=", "LOCAL_RANK="}) entries.push_back(str(name, rank));
  for (const auto* name : {"WORLD_SIZE=", "LOCAL_WORLD_SIZE="}) entries.push_back(str(name, plan.ranks));
  entries.push_back(str("LOCKSTEP_JOB_ID=", std::string(8, '0'), getpid() % 90000000 + 10000000));
  entries.emplace_back("MASTER_ADDR=127.0.0.1");
  static const int port = free_port();  // not one for all: tests run side by side
  entries.push_back(str("MASTER_PORT=", port));
  std::string list;
  for (const int fd : hub) list += str(list.empty() ? "" : ",", fd);
  if (!list.empty()) entries.push_back("LOCKSTEP_HUB_FDS=" + list);
  return entries;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& text : strings) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

struct Process {
  pid_t pid = -1;
  Fd output, reports;  // read ends
  ReportReader reader;
  ProcessOutcome outcome;
};

// The ends of pipes and sockets that a process is to have.
struct Ends {
  int output, reports;
  std::vector<int> hub;
};

pid_t start_program(const ProcessesPlan& plan, int rank, const Ends& ends) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends.output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends.output, STDERR_FILENO);
  for (const int fd : ends.hub)
    posix_spawn_file_actions_adddup2(&actions, fd, fd);  // onto itself: clears CLOEXEC
  posix_spawn_file_actions_adddup2(&actions, ends.reports, ends.reports);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);

  std::vector<std::string> arguments = {"ranks_test", "--gtest_filter=" + plan.filter,
                                        "--gtest_also_run_disabled_tests",
                                        str(CHILD_ARGUMENT, rank, ",", getpid(), ",", ends.reports)};
  std::vector<std::string> environment = environment_of(plan, rank, ends.hub);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, "/proc/self/exe", &actions, &attributes, pointers(arguments).data(),
                                pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) throw std::system_error(error, std::generic_category(), "posix_spawn");
  return pid;
}

// OpenMP has read its variable when libtorch was loaded.
void set_openmp_threads() {
  const char* const threads = std::getenv("OMP_NUM_THREADS");  // NOLINT(concurrency-mt-unsafe)
  void* const function = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
  if (threads != nullptr && function != nullptr)
    reinterpret_cast<void (*)(int)>(function)(std::stoi(threads));
}

// This process watches and has no threads, so that a copy of it is whole.
pid_t start_copy(const ProcessesPlan& plan, int rank, const Ends& ends) {
  const int watcher = getpid();
  static std::vector<std::string> environment;  // which environ points to in the copy
  environment = environment_of(plan, rank, ends.hub);
  std::fflush(nullptr);
  const pid_t pid = fork();
  check(pid >= 0, "fork");
  if (pid > 0) return pid;
  setpgid(0, 0);
  check(dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO) == STDIN_FILENO, "dup2");
  check(dup2(ends.output, STDOUT_FILENO) >= 0 && dup2(ends.output, STDERR_FILENO) >= 0, "dup2");
  std::vector<int> kept = ends.hub;
  kept.push_back(ends.reports);
  std::sort(kept.begin(), kept.end());
  unsigned int from = STDERR_FILENO + 1;
  for (const int fd : kept) {
    if (from < static_cast<unsigned int>(fd)) close_range(from, static_cast<unsigned int>(fd) - 1, 0);
    from = static_cast<unsigned int>(fd) + 1;
  }
  close_range(from, ~0U, 0);
  static std::vector<char*> entries = pointers(environment);
  environ = entries.data();
  set_openmp_threads();
  spare_teardown_of_libraries();
  std::exit(plan.as_copy({rank, watcher, ends.reports}));  // NOLINT(concurrency-mt-unsafe): as main() would
}

Process start(const ProcessesPlan& plan, int rank, const Star& star) {
  Process process;
  auto [output, output_end] = make_pipe();
  auto [reports, reports_end] = make_pipe();
  const Ends ends = {output_end.get(), reports_end.get(),
                     plan.processes > 1 ? hub_fds(star, rank) : std::vector<int>{}};
  process.pid = plan.as_copy ? start_copy(plan, rank, ends) : start_program(plan, rank, ends);
  if (plan.as_copy) setpgid(process.pid, process.pid);  // whoever comes first
  fcntl(output.get(), F_SETFL, O_NONBLOCK);
  process.output = std::move(output);
  process.reports = std::move(reports);
  return process;
}

std::string first_line(const std::filesystem::path& path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}

// One line per thread: its name, where it sleeps in the kernel and, if we may read it, the stack there.
std::string where_is(pid_t pid) {
  std::string text;
  std::error_code ignored;
  for (const auto& task : std::filesystem::directory_iterator(str("/proc/", pid, "/task"), ignored)) {
    std::string state, line;
    for (std::ifstream status(task.path() / "status"); std::getline(status, line);) {
      if (line.starts_with("State:")) state = line.substr(7);
    }
    text += str("  thread ", task.path().filename().string(), " (", first_line(task.path() / "comm"), ") ",
                state, ", in ", first_line(task.path() / "wchan"), ", syscall ",
                first_line(task.path() / "syscall"), "\n");
    for (std::ifstream stack(task.path() / "stack"); std::getline(stack, line);) text += "    " + line + "\n";
  }
  return text;
}

class Watch {
 public:
  Watch(std::vector<Process> processes, const ProcessesPlan& plan)
      : processes_(std::move(processes)), plan_(plan), deadline_(Deadline::in(plan.within)) {}
  ~Watch() { kill_all(); }

  Outcome run() {
    while (any_running()) {
      if (deadline_.expired()) give_up();
      wait_for_news();
    }
    Outcome outcome{std::move(reports_), {}};
    for (Process& process : processes_) outcome.processes.push_back(std::move(process.outcome));
    return outcome;
  }

 private:
  bool any_running() const {
    return std::any_of(processes_.begin(), processes_.end(), [](const Process& p) { return p.pid > 0; });
  }

  void wait_for_news() {
    std::vector<pollfd> polled;
    for (const Process& process : processes_) {
      polled.push_back({process.reports.get(), POLLIN, 0});  // a closed one is -1, which poll ignores
      polled.push_back({process.output.get(), POLLIN, 0});
    }
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline_.remaining()).count() + 1;
    if (poll(polled.data(), polled.size(), static_cast<int>(std::min<long>(left, 60000))) <= 0) return;
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      if (polled[2 * i + 1].revents != 0) read_output(processes_[i]);
      if (polled[2 * i].revents != 0) read_reports(processes_[i]);
    }
  }

  // False when there is nothing to read now.
  static bool read_output(Process& process) {
    char buffer[4096];
    const ssize_t got = read(process.output.get(), buffer, sizeof buffer);
    if (got == 0) process.output.close();
    if (got <= 0) return false;
    std::string& kept = process.outcome.last_output;
    kept.append(buffer, static_cast<std::size_t>(got));
    if (kept.size() > OUTPUT_KEPT) kept.erase(0, kept.size() - OUTPUT_KEPT);
    return true;
  }

  // The end of this pipe is the end of the process: nobody else holds its other end.
  void read_reports(Process& process) {
    char buffer[4096];
    const ssize_t got = read(process.reports.get(), buffer, sizeof buffer);
    if (got < 0) return;
    if (got == 0) return reap(process);
    for (Report& report : process.reader.add({buffer, static_cast<std::size_t>(got)})) {
      if (report.kind == ReportKind::FINISHED) {
        process.outcome.finished = true;
        process.outcome.note = report.message;
      } else {
        reports_.push_back(std::move(report));
      }
    }
  }

  void reap(Process& process) {
    int status = 0;
    while (waitpid(process.pid, &status, 0) < 0 && errno == EINTR) {
    }
    kill(-process.pid, SIGKILL);  // whatever it started
    process.pid = -1;
    process.reports.close();
    while (process.output.is_open() && read_output(process)) {
    }
    process.output.close();
    if (WIFSIGNALED(status)) process.outcome.signal = WTERMSIG(status);
    if (WIFEXITED(status)) process.outcome.exit_code = WEXITSTATUS(status);
    const auto index = static_cast<int>(&process - processes_.data());
    const bool expected = std::find(plan_.dying.begin(), plan_.dying.end(), index) != plan_.dying.end();
    if (!process.outcome.finished && !expected) shorten();
  }

  // A rank died unexpectedly: the others should notice by themselves, but the test has failed and need not
  // take long.
  void shorten() {
    if (deadline_.remaining() > GRACE) deadline_ = Deadline::in(GRACE);
  }

  void give_up() {
    for (Process& process : processes_) {
      if (process.pid <= 0) continue;
      process.outcome.timed_out = true;
      process.outcome.where = where_is(process.pid);
    }
    kill_all();
    deadline_ = Deadline::never();  // only the ends are still to be read
  }

  void kill_all() {
    for (const Process& process : processes_) {
      if (process.pid > 0) kill(-process.pid, SIGKILL);
    }
  }

  std::vector<Process> processes_;
  const ProcessesPlan& plan_;
  Deadline deadline_;
  std::vector<Report> reports_;
};

}  // namespace

Outcome run_processes(const ProcessesPlan& plan) {
  std::vector<Process> processes;
  Star star = make_star(plan.processes);
  for (int rank = 0; rank < plan.processes; ++rank) processes.push_back(start(plan, rank, star));
  star = {};  // the ranks hold the only ends, so that one rank's death closes its connections
  return Watch(std::move(processes), plan).run();
}

std::optional<ChildPlan> child_plan(int* argc, char** argv) {
  if (*argc < 2) return std::nullopt;
  const std::string_view last = argv[*argc - 1];
  if (!last.starts_with(CHILD_ARGUMENT)) return std::nullopt;
  --*argc;
  ChildPlan plan;
  const char* at = last.data() + CHILD_ARGUMENT.size();
  for (int* field : {&plan.rank, &plan.parent, &plan.report_fd}) {
    at = std::from_chars(at, last.data() + last.size(), *field).ptr + 1;
  }
  fcntl(plan.report_fd, F_SETFD, FD_CLOEXEC);
  return plan;
}

}  // namespace lockstep::harness
