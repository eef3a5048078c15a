// Keeps the last lines of a rank, for the summary of a failure.
#pragma once

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
    for (const char c : bytes) {
      if (c == '\n') {
        add(unfinished);
        unfinished.clear();
      } else if (unfinished.size() < LONGEST) {
        unfinished += c;
      } else if (c == '\r') {
        unfinished.clear();
      }
    }
  }

  void add(std::string_view line) {
    while (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    const auto overwritten = line.rfind('\r');
    if (overwritten != std::string_view::npos) line.remove_prefix(overwritten + 1);
    lines_.emplace_back(line);
    if (lines_.size() > COUNT) lines_.pop_front();
  }

  std::vector<std::string> lines() const { return {lines_.begin(), lines_.end()}; }

 private:
  std::deque<std::string> lines_;
};

}  // namespace lockstep
