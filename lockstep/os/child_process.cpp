#include "lockstep/os/child_process.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/base/str.h"
#include "lockstep/os/open_files.h"
#include "lockstep/os/pipe.h"

namespace lockstep {
namespace {

// The child's data, prepared before fork. Between fork and exec the child may only make system calls, because
// another thread may have held a lock of malloc's at the fork.
struct Prepared {
  std::vector<char*> arguments;
  std::vector<char*> environment;
  cpu_set_t* cpus = nullptr;
  std::size_t cpus_size = 0;
  std::array<int, 3> standard{};
  pid_t parent = 0;
  sigset_t signal_mask{};
};

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (const auto& text : strings)
    out.push_back(const_cast<char*>(text.c_str()));  // NOLINT: execve's signature
  out.push_back(nullptr);
  return out;
}

[[noreturn]] void fail_child(int report) {
  const int error = errno;
  const ssize_t ignored = write(report, &error, sizeof error);
  static_cast<void>(ignored);
  _exit(127);
}

[[noreturn]] void run_child(const SpawnRequest& request, const Prepared& prepared, int report) {
  setpgid(0, 0);
  // If the parent died before this call, the signal never comes. getppid() then names another process.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != prepared.parent) _exit(127);
  if (prepared.cpus != nullptr)
    sched_setaffinity(0, prepared.cpus_size, prepared.cpus);  // if refused, the child runs unpinned
  for (int i = 0; i < 3; ++i) {
    if (dup2(prepared.standard[static_cast<std::size_t>(i)], i) < 0) fail_child(report);
  }
  for (const int fd : request.inherited) {
    if (fcntl(fd, F_SETFD, 0) != 0) fail_child(report);
  }
  restore_open_files();
  fail_point("spawn.exec");
  sigprocmask(SIG_SETMASK, &prepared.signal_mask, nullptr);
  execve(request.executable.c_str(), prepared.arguments.data(), prepared.environment.data());
  fail_child(report);
}

struct CpuSet {
  explicit CpuSet(const std::vector<int>& cpus) {
    if (cpus.empty()) return;
    int highest = 0;
    for (const int cpu : cpus) highest = std::max(highest, cpu);
    set = CPU_ALLOC(highest + 1);
    size = CPU_ALLOC_SIZE(highest + 1);
    CPU_ZERO_S(size, set);
    for (const int cpu : cpus) CPU_SET_S(static_cast<std::size_t>(cpu), size, set);
  }
  CpuSet(const CpuSet&) = delete;
  CpuSet& operator=(const CpuSet&) = delete;
  ~CpuSet() {
    if (set != nullptr) CPU_FREE(set);
  }
  cpu_set_t* set = nullptr;
  std::size_t size = 0;
};

ExitStatus from_wait(int status) {
  if (WIFSIGNALED(status)) return {0, WTERMSIG(status)};
  return {WEXITSTATUS(status), 0};
}

int program_error(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return errno;
  if (S_ISDIR(info.st_mode)) return EISDIR;
  return access(path.c_str(), X_OK) == 0 ? 0 : EACCES;
}

}  // namespace

ChildProcess spawn(const SpawnRequest& request) {
  fail_point("spawn.fork");  // also reads the fail points' variable, which the child must not do
  const Fd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null.valid()) throw SystemError("cannot open /dev/null", errno);
  const auto or_null = [&](int fd) { return fd >= 0 ? fd : null.get(); };
  const CpuSet cpus(request.cpus);
  Prepared prepared{
      pointers(request.arguments),
      pointers(request.environment),
      cpus.set,
      cpus.size,
      {or_null(request.standard_input), or_null(request.standard_output), or_null(request.standard_error)},
      getpid(),
      {}};
  if (request.signal_mask != nullptr) {
    prepared.signal_mask = *request.signal_mask;
  } else {
    sigemptyset(&prepared.signal_mask);
  }
  Pipe report = make_pipe();
  const pid_t pid = fork();
  if (pid < 0) throw SystemError("cannot start a process", errno);
  if (pid == 0) run_child(request, prepared, report.write.get());
  setpgid(pid, pid);  // parent and child both do this, so that kill(-pid) works for either from now on
  return {pid, std::move(report.read)};
}

int exec_error(const ChildProcess& child) {
  int error = 0;
  ssize_t got = 0;
  do {
    got = read(child.exec_report.get(), &error, sizeof error);
  } while (got < 0 && errno == EINTR);
  return got == sizeof error ? error : 0;
}

pid_t fork_child(const std::function<int()>& body) {
  const pid_t pid = fork();
  if (pid < 0) throw SystemError("cannot start a process", errno);
  if (pid == 0) _exit(body());
  return pid;
}

void die_with_parent() { prctl(PR_SET_PDEATHSIG, SIGKILL); }

void leave_process_group() { setpgid(0, 0); }

void name_process(const std::string& name) { prctl(PR_SET_NAME, name.c_str()); }

std::optional<ExitStatus> poll_exit(pid_t pid) {
  int status = 0;
  const pid_t got = waitpid(pid, &status, WNOHANG);
  if (got == pid) return from_wait(status);
  if (got < 0 && errno != EINTR) return ExitStatus{255, 0};
  return std::nullopt;
}

ExitStatus wait_exit(pid_t pid) {
  for (;;) {
    int status = 0;
    if (waitpid(pid, &status, 0) == pid) return from_wait(status);
    if (errno != EINTR) return {255, 0};
  }
}

bool has_ended(pid_t pid) {
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0) return errno != EINTR;
  return info.si_pid == pid;
}

namespace {

void check_names_one(pid_t pid) {
  if (pid <= 1)
    throw InternalError(str("cannot signal process ", pid, ": it is not a process that was started"));
}

}  // namespace

void signal_process(pid_t pid, int signal) {
  check_names_one(pid);
  kill(pid, signal);
}

void signal_process_group(pid_t leader, int signal) {
  check_names_one(leader);
  kill(-leader, signal);
  if (signal == SIGKILL || getpgid(leader) != leader) kill(leader, signal);
}

std::string signal_name(int signal) {
  if (const char* abbreviation = sigabbrev_np(signal)) return str("SIG", abbreviation);
  if (signal >= SIGRTMIN && signal <= SIGRTMAX) return str("SIGRTMIN+", signal - SIGRTMIN);
  return str("signal ", signal);
}

std::string describe(const ExitStatus& status) {
  return status.signal != 0 ? "killed by " + signal_name(status.signal) : str("exit code ", status.code);
}

ProgramPath find_program(const std::string& program, const std::string& path_variable) {
  if (program.empty()) return {program, ENOENT};
  if (program.find('/') != std::string::npos) return {program, program_error(program)};
  ProgramPath found{program, ENOENT};
  std::string_view rest = path_variable;
  for (;;) {
    const auto colon = rest.find(':');
    const std::string_view folder = rest.substr(0, colon);
    const std::string candidate = str(folder.empty() ? "." : folder, "/", program);
    const int error = program_error(candidate);
    if (error == 0) return {candidate, 0};
    // access() reports EACCES also for a folder that may not be searched. Only if stat() finds the file is
    // there a program.
    struct stat info {};
    if (error == EACCES && stat(candidate.c_str(), &info) == 0) found = {candidate, EACCES};
    if (colon == std::string_view::npos) return found;
    rest.remove_prefix(colon + 1);
  }
}

}  // namespace lockstep
