#include "lockstep/os/process_table.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string_view>

#include "lockstep/base/str.h"
#include "lockstep/os/fd.h"
#include "lockstep/os/proc_folder.h"

namespace lockstep {
namespace {

struct CloseDirectory {
  void operator()(DIR* directory) const { closedir(directory); }
};

template <typename T> bool parse(std::string_view text, T& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

// Takes the text up to the next space off the front, with that space.
std::string_view next_field(std::string_view& text) {
  const std::string_view field = text.substr(0, text.find(' '));
  text.remove_prefix(std::min(text.size(), field.size() + 1));
  return field;
}

// Parses "pid (name) state parent ...". The name may contain any character, so fields count from the last
// ')'. The parent is the pid that /proc shows.
ProcessStat stat_in(const std::string& folder) {
  const Fd file(open((folder + "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  if (folder.empty() || !file.valid()) return {};
  std::array<char, 1024> buffer = {};
  const ssize_t length = read(file.get(), buffer.data(), buffer.size());
  if (length <= 0) return {};
  std::string_view text(buffer.data(), static_cast<std::size_t>(length));
  const std::size_t end_of_name = text.rfind(") ");
  if (end_of_name == std::string_view::npos) return {};
  text.remove_prefix(end_of_name + 2);
  ProcessStat stat;
  const std::string_view state = next_field(text);
  if (state.size() != 1 || !parse(next_field(text), stat.parent)) return {};
  stat.state = state[0];
  constexpr int BETWEEN = 17;  // the parent is field 4, the start time field 22
  for (int i = 0; i < BETWEEN; ++i) next_field(text);
  return parse(next_field(text), stat.start_time) ? stat : ProcessStat{};
}

}  // namespace

ProcessStat process_stat(pid_t pid) {
  ProcessStat stat = stat_in(proc_folder(pid));
  if (stat.parent != 0 && proc_view() == ProcView::OUTER) stat.parent = pid_shown_as(stat.parent).value_or(0);
  return stat;
}

std::vector<std::string> command_line(pid_t pid) {
  std::vector<std::string> arguments;
  std::ifstream file(proc_folder(pid) + "/cmdline", std::ios::binary);
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

std::string process_namespace() {
  struct stat status = {};
  return stat("/proc/self/ns/pid", &status) == 0 ? std::to_string(status.st_ino) : "";
}

std::string network_namespace(pid_t pid) {
  struct stat status = {};
  return stat((proc_folder(pid) + "/ns/net").c_str(), &status) == 0 ? std::to_string(status.st_ino) : "";
}

std::vector<pid_t> ancestor_processes() {
  std::vector<pid_t> ancestors;
  for (pid_t pid = getppid(); pid > 0; pid = process_stat(pid).parent) ancestors.push_back(pid);
  return ancestors;
}

std::vector<ProcessEntry> all_processes() {
  const std::vector<ShownProcess> shown = shown_processes();
  std::map<pid_t, pid_t> pids;
  for (const ShownProcess& process : shown) pids.emplace(process.shown, process.pid);
  std::vector<ProcessEntry> processes;
  for (const ShownProcess& process : shown) {
    const ProcessStat stat = stat_in(str("/proc/", process.shown));
    const auto parent = pids.find(stat.parent);
    processes.push_back({process.pid, parent == pids.end() ? 0 : parent->second, stat.state});
  }
  return processes;
}

bool is_any_stopped(pid_t root, const std::vector<ProcessEntry>& processes) {
  std::set<pid_t> family = {root};
  // `processes` has no order, so the loop repeats until it finds no further descendant.
  for (std::size_t before = 0; before != family.size();) {
    before = family.size();
    for (const ProcessEntry& entry : processes) {
      if (family.count(entry.parent) != 0) family.insert(entry.pid);
    }
  }
  return std::any_of(processes.begin(), processes.end(), [&](const ProcessEntry& entry) {
    return family.count(entry.pid) != 0 && (entry.state == 'T' || entry.state == 't');
  });
}

std::vector<int> numbers_in(const char* folder) {
  std::vector<int> found;
  const std::unique_ptr<DIR, CloseDirectory> directory(opendir(folder));
  if (!directory) return found;
  while (const dirent* entry =
             readdir(directory.get())) {  // NOLINT(concurrency-mt-unsafe): a stream of our own
    int number = 0;
    if (parse(entry->d_name, number)) found.push_back(number);
  }
  return found;
}

}  // namespace lockstep
