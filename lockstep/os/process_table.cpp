#include "lockstep/os/process_table.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <string_view>

#include "lockstep/base/str.h"
#include "lockstep/os/fd.h"

namespace lockstep {
namespace {

struct CloseDirectory {
  void operator()(DIR* directory) const { closedir(directory); }
};

template <typename T> bool parse(std::string_view text, T& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

// Up to the next space, which is taken away, too.
std::string_view next_field(std::string_view& text) {
  const std::string_view field = text.substr(0, text.find(' '));
  text.remove_prefix(std::min(text.size(), field.size() + 1));
  return field;
}

}  // namespace

// "pid (name) state parent ...": the name may hold anything, so fields count from the last ')'.
ProcessStat process_stat(pid_t pid) {
  const Fd file(open(str("/proc/", pid, "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return {};
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

std::vector<ProcessEntry> all_processes() {
  std::vector<ProcessEntry> processes;
  for (const pid_t pid : numbers_in("/proc")) processes.push_back({pid, process_stat(pid).parent});
  return processes;
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
