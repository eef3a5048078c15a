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
#include "lockstep/os/process_table.h"

namespace lockstep {
namespace {

// The whole process table: slower than the kernel's list of children, but never misses one.
std::vector<pid_t> children_by_scan() {
  std::vector<pid_t> children;
  for (const ProcessEntry& entry : all_processes()) {
    if (entry.parent == getpid()) children.push_back(entry.pid);
  }
  return children;
}

// The kernel's list may leave some out while others exit (proc(5)).
std::vector<pid_t> children_by_list() {
  std::vector<pid_t> children;
  for (const int task : numbers_in("/proc/self/task")) {
    std::ifstream file(str("/proc/self/task/", task, "/children"));
    for (pid_t pid = 0; file >> pid;) children.push_back(pid);
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
  if (kernel_has(KernelFeature::CHILDREN)) {
    std::vector<pid_t> children = children_by_list();
    if (!children.empty()) return children;
  }
  return children_by_scan();
}

void reap_children(std::span<const pid_t> keep) {
  for (const pid_t pid : children_of_this_process()) {
    if (!contains(keep, pid)) reap(pid);
  }
}

std::vector<pid_t> kill_children(std::span<const pid_t> keep) {
  std::vector<pid_t> left;
  for (const pid_t pid : children_of_this_process()) {
    if (contains(keep, pid)) continue;
    kill(pid, SIGKILL);
    if (!reap(pid)) left.push_back(pid);
  }
  if (!left.empty() || !has_children()) return left;
  // Orphans may have become our children meanwhile: only a full scan without any may end the caller's loop.
  for (const pid_t pid : children_by_scan()) {
    if (!contains(keep, pid)) left.push_back(pid);
  }
  return left;
}

std::vector<pid_t> kill_all_children(std::span<const pid_t> keep, std::chrono::milliseconds limit) {
  const Deadline deadline = Deadline::in(limit);
  for (;;) {
    std::vector<pid_t> left = kill_children(keep);
    if (left.empty() || deadline.expired()) return left;
    poll(nullptr, 0, 1);
  }
}

std::string process_name(pid_t pid) {
  std::ifstream file(str("/proc/", pid, "/comm"));
  std::string name;
  return std::getline(file, name) ? printable(name) : "?";
}

}  // namespace lockstep
