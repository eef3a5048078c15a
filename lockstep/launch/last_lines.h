// Keeps the last lines of a rank, for the summary of a failure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class LastLines {
 public:
  static constexpr std::size_t COUNT = 20;
  static constexpr std::size_t LONGEST = 2000;  // characters kept of one line

  // `unfinished` belongs to the caller: each of a rank's streams has its own half line.
  void feed(std::string& unfinished, std::string_view bytes) {
    for (auto end = bytes.find('\n'); end != std::string_view::npos; end = bytes.find('\n')) {
      extend(unfinished, bytes.substr(0, end));
      add(unfinished);
      unfinished.clear();
      bytes.remove_prefix(end + 1);
    }
    extend(unfinished, bytes);
  }

  void add(std::string_view line) {
    while (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    const auto overwritten = line.rfind('\r');
    if (overwritten != std::string_view::npos) line.remove_prefix(overwritten + 1);
    lines_.emplace_back(line.substr(0, LONGEST));
    if (lines_.size() > COUNT) lines_.pop_front();
  }

  std::vector<std::string> lines() const { return {lines_.begin(), lines_.end()}; }

 private:
  // What stands before the last return is overwritten. Between two lines twice LONGEST is kept at most.
  static void extend(std::string& unfinished, std::string_view bytes) {
    unfinished += bytes;
    if (unfinished.size() <= 2 * LONGEST) return;
    const auto text_end = unfinished.find_last_not_of('\r');
    const auto overwritten = text_end == std::string::npos ? text_end : unfinished.rfind('\r', text_end);
    if (overwritten != std::string::npos) unfinished.erase(0, overwritten + 1);
    unfinished.resize(std::min(unfinished.size(), 2 * LONGEST));
  }

  std::deque<std::string> lines_;
};

}  // namespace lockstep
