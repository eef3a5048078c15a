#include "lockstep/os/proc_folder.h"

#include <unistd.h>

#include <array>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string_view>

#include "lockstep/base/str.h"
#include "lockstep/os/process_table.h"

namespace lockstep {
namespace {

std::string link_text(const std::string& path) {
  std::array<char, 64> text{};
  const ssize_t length = readlink(path.c_str(), text.data(), text.size());
  return length <= 0 ? "" : std::string(text.data(), static_cast<std::size_t>(length));
}

// The pids of a process in all its namespaces, from that of /proc inwards to its own.
std::vector<pid_t> numbers_of(const std::string& folder) {
  std::ifstream status(folder + "/status");
  for (std::string line; std::getline(status, line);) {
    constexpr std::string_view NAME = "NSpid:";
    if (!line.starts_with(NAME)) continue;
    std::istringstream text(line.substr(NAME.size()));
    std::vector<pid_t> numbers;
    for (pid_t number = 0; text >> number;) numbers.push_back(number);
    return numbers;
  }
  return {};
}

// Depth alone is not enough: a namespace of the same depth may be another container's. A process counts if
// its own namespace, or that of an ancestor, is this process's.
bool is_in_this_namespace(const std::string& folder, const std::string& own) {
  constexpr int MOST_GENERATIONS = 64;
  std::string at = folder;
  for (int i = 0; i < MOST_GENERATIONS; ++i) {
    if (link_text(at + "/ns/pid") == own) return true;
    pid_t parent = 0;
    std::ifstream status(at + "/status");
    for (std::string word; status >> word;) {
      if (word == "PPid:") {
        status >> parent;
        break;
      }
    }
    if (parent <= 0) return false;
    at = str("/proc/", parent);
  }
  return false;
}

}  // namespace

ProcView proc_view() {
  const std::string self = link_text("/proc/self");
  if (self.empty()) return ProcView::NONE;
  return self == std::to_string(getpid()) ? ProcView::OWN : ProcView::OUTER;
}

std::string proc_folder(pid_t pid) {
  if (pid == getpid()) return "/proc/self";
  if (proc_view() != ProcView::OUTER) return str("/proc/", pid);
  for (const ShownProcess& process : shown_processes()) {
    if (process.pid == pid) return str("/proc/", process.shown);
  }
  return "";
}

std::optional<pid_t> pid_shown_as(pid_t shown) {
  if (proc_view() != ProcView::OUTER) return shown;
  const std::size_t depth = numbers_of("/proc/self").size();
  const std::string folder = str("/proc/", shown);
  const std::vector<pid_t> numbers = numbers_of(folder);
  if (depth == 0 || numbers.size() < depth) return std::nullopt;
  if (!is_in_this_namespace(folder, link_text("/proc/self/ns/pid"))) return std::nullopt;
  return numbers[depth - 1];
}

std::vector<ShownProcess> shown_processes() {
  std::vector<ShownProcess> processes;
  for (const pid_t shown : numbers_in("/proc")) {
    if (const auto pid = pid_shown_as(shown)) processes.push_back({shown, *pid});
  }
  return processes;
}

}  // namespace lockstep
