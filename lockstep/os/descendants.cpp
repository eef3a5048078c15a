#include "lockstep/os/descendants.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fstream>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/os/kernel_features.h"
#include "lockstep/os/proc_folder.h"
#include "lockstep/os/process_table.h"

namespace lockstep {
namespace {

// Scans the whole process table. This is slower than the kernel's list of children, but it never misses a
// child.
std::vector<pid_t> children_by_scan() {
  std::vector<pid_t> children;
  for (const ProcessEntry& entry : all_processes()) {
    if (entry.parent == getpid()) children.push_back(entry.pid);
  }
  return children;
}

// The kernel's list may miss children while others exit (proc(5)).
std::vector<pid_t> children_by_list() {
  std::vector<pid_t> children;
  for (const int task : numbers_in("/proc/self/task")) {
    std::ifstream file(str("/proc/self/task/", task, "/children"));
    for (pid_t shown = 0; file >> shown;) {
      if (const auto pid = pid_shown_as(shown)) children.push_back(*pid);
    }
  }
  return children;
}

bool contains(std::span<const pid_t> pids, pid_t pid) {
  return std::find(pids.begin(), pids.end(), pid) != pids.end();
}

bool has_children() {
  siginfo_t info{};
  return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

// Without /proc: asks the kernel for every pid whether it is a child. Pids in containers are usually small.
// So all pids that Linux can assign, which are many more, are tried only if the first NEAR contain no child
// except `known`.
std::vector<pid_t> children_by_number(std::span<const pid_t> known) {
  constexpr pid_t NEAR = 1 << 15;
  constexpr pid_t NUMBERS = 1 << 22;
  std::vector<pid_t> children;
  bool is_any_new = false;
  for (pid_t pid = 1; pid < (is_any_new ? NEAR : NUMBERS); ++pid) {
    siginfo_t info{};
    if (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0) continue;
    children.push_back(pid);
    is_any_new = is_any_new || !contains(known, pid);
  }
  return children;
}

// Without /proc: reaps the children that have ended, up to the first that must be kept. waitid() would return
// that child again and again.
void reap_ended(std::span<const pid_t> keep) {
  for (;;) {
    siginfo_t info{};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    if (contains(keep, info.si_pid)) return;
    waitpid(info.si_pid, nullptr, WNOHANG);
  }
}

bool reap(pid_t pid) {
  const pid_t got = waitpid(pid, nullptr, WNOHANG);
  return got == pid || (got < 0 && errno == ECHILD);
}

}  // namespace

void adopt_orphans() {
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) throw SystemError("cannot adopt orphaned processes", errno);
}

std::vector<pid_t> children_of_this_process() {
  if (!has_children()) return {};
  if (proc_view() == ProcView::NONE) return children_by_number({});
  if (kernel_has(KernelFeature::CHILDREN)) {
    std::vector<pid_t> children = children_by_list();
    if (!children.empty()) return children;
  }
  return children_by_scan();
}

void reap_children(std::span<const pid_t> keep) {
  if (proc_view() == ProcView::NONE) return reap_ended(keep);
  for (const pid_t pid : children_of_this_process()) {
    if (!contains(keep, pid)) reap(pid);
  }
}

std::vector<pid_t> kill_children(std::span<const pid_t> keep) {
  std::vector<pid_t> left;
  const bool has_proc = proc_view() != ProcView::NONE;
  if (!has_proc && !has_children()) return left;
  for (const pid_t pid : has_proc ? children_of_this_process() : children_by_number(keep)) {
    if (contains(keep, pid)) continue;
    kill(pid, SIGKILL);
    if (!reap(pid)) left.push_back(pid);
  }
  if (!left.empty() || !has_children()) return left;
  // Orphans may have become children of this process meanwhile. So only a full scan without any child may end
  // the caller's loop.
  for (const pid_t pid : has_proc ? children_by_scan() : children_by_number(keep)) {
    if (!contains(keep, pid)) left.push_back(pid);
  }
  return left;
}

std::vector<pid_t> kill_all_children(std::span<const pid_t> keep, std::chrono::milliseconds limit) {
  const Deadline deadline = Deadline::in(limit);
  for (;;) {
    std::vector<pid_t> left = kill_children(keep);
    if (left.empty() || deadline.expired()) return left;
    nap(std::chrono::milliseconds(1));
  }
}

std::string process_name(pid_t pid) {
  std::ifstream file(proc_folder(pid) + "/comm");
  std::string name;
  return std::getline(file, name) ? printable(name) : "?";
}

}  // namespace lockstep
