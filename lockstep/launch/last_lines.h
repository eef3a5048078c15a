// LastLines: keeps the last lines of a rank, for the summary of a failure. Of a backtrace it keeps only the
// first frames, so that the message above the backtrace is kept too.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

// Returns whether a line is a frame of a backtrace. libtorch prints "frame #3: ...", gdb and the sanitizers
// "#3 ...", Boost "3# ...". All print the deepest call first, below the message.
inline bool is_frame(std::string_view line) {
  const auto skip = [&](std::string_view characters) {
    const auto end = line.find_first_not_of(characters);
    const std::size_t skipped = end == std::string_view::npos ? line.size() : end;
    line.remove_prefix(skipped);
    return skipped > 0;
  };
  constexpr std::string_view DIGITS = "0123456789";
  skip(" \t");
  if (line.starts_with("frame #")) line.remove_prefix(std::string_view("frame ").size());
  if (!line.starts_with('#')) return skip(DIGITS) && line.starts_with("# ");
  line.remove_prefix(1);
  return skip(DIGITS) && (line.starts_with(": ") || line.starts_with(' '));
}

// The last line that is neither blank nor part of a backtrace; empty if there is none.
inline std::string last_words(const std::vector<std::string>& lines) {
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    const bool is_blank = line->find_first_not_of(" \t") == std::string::npos;
    const bool is_heading = line->starts_with("Exception raised from ") || line->starts_with("  ... and ");
    if (!is_blank && !is_heading && !is_frame(*line)) return *line;
  }
  return "";
}

class LastLines {
 public:
  static constexpr std::size_t COUNT = 20;
  static constexpr std::size_t LONGEST = 2000;  // characters kept of one line
  static constexpr std::size_t FRAMES = 3;      // of a backtrace

  // `unfinished` is the stream's partial line. The caller owns it, because each of a rank's streams has its
  // own.
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
    frames_ = is_frame(line) ? frames_ + 1 : 0;
    if (frames_ <= FRAMES) return keep(std::string(line.substr(0, LONGEST)));
    const std::size_t more = frames_ - FRAMES;
    if (more > 1) lines_.pop_back();
    keep("  ... and " + std::to_string(more) + (more == 1 ? " more frame" : " more frames"));
  }

  std::vector<std::string> lines() const { return {lines_.begin(), lines_.end()}; }

 private:
  void keep(std::string line) {
    lines_.push_back(std::move(line));
    if (lines_.size() > COUNT) lines_.pop_front();
  }

  // Drops text that a later carriage return overwrites. Keeps at most twice LONGEST of a partial line.
  static void extend(std::string& unfinished, std::string_view bytes) {
    unfinished += bytes;
    if (unfinished.size() <= 2 * LONGEST) return;
    const auto text_end = unfinished.find_last_not_of('\r');
    const auto overwritten = text_end == std::string::npos ? text_end : unfinished.rfind('\r', text_end);
    if (overwritten != std::string::npos) unfinished.erase(0, overwritten + 1);
    unfinished.resize(std::min(unfinished.size(), 2 * LONGEST));
  }

  std::deque<std::string> lines_;
  std::size_t frames_ = 0;  // frames in a row so far
};

}  // namespace lockstep
