#include "lockstep/launch/output_mux.h"

#include "lockstep/base/str.h"
#include "lockstep/launch/output_text.h"

namespace lockstep {
namespace {

constexpr std::string_view ERASE_LINE = "\r\x1b[K";

// The visible part of "10%\r20%\r30%" on a terminal: the text after the last carriage return that has text
// behind it.
std::string_view last_overwrite(std::string_view line) {
  const auto text_end = line.find_last_not_of('\r');
  if (text_end == std::string_view::npos) return {};
  const auto start = line.find_last_of('\r', text_end);
  return start == std::string_view::npos ? line.substr(0, text_end + 1)
                                         : line.substr(start + 1, text_end - start);
}

}  // namespace

std::string OutputMux::prefix_of(int rank) const {
  return options_.prefix ? "[" + std::to_string(options_.first_rank + rank) + "] " : "";
}

// Complete lines are emitted. Of rank 0's unfinished line on a terminal only the visible part is kept.
void OutputMux::feed(int rank, Stream stream, std::string_view bytes) {
  std::string& rest = unfinished_[{rank, stream}];
  hide_unfinished();
  for (auto end = bytes.find('\n'); end != std::string_view::npos; end = bytes.find('\n')) {
    rest += bytes.substr(0, end);
    emit_line(rank, stream, rest);
    rest.clear();
    bytes.remove_prefix(end + 1);
  }
  rest += bytes;
  if (rank == 0 && is_terminal(stream)) {
    const auto last = last_overwrite(rest);
    const bool is_pending_return = !rest.empty() && rest.back() == '\r';
    rest = std::string(last) + (is_pending_return ? "\r" : "");
    shown_on_ = stream;
  }
  while (rest.size() > LONGEST_LINE) {
    emit_line(rank, stream, std::string_view(rest).substr(0, LONGEST_LINE));
    rest.erase(0, LONGEST_LINE);
  }
  show_unfinished(shown_on_);
}

void OutputMux::close(int rank, Stream stream) {
  const auto found = unfinished_.find({rank, stream});
  if (found == unfinished_.end()) return;
  const std::string line = std::move(found->second);
  unfinished_.erase(found);
  if (line.empty()) return;
  hide_unfinished();
  emit_line(rank, stream, line);
  show_unfinished(shown_on_);
}

void OutputMux::launcher_line(std::string_view text) {
  hide_unfinished();
  emit_(Stream::ERR, str("lockstep: ", text, "\n"));
  show_unfinished(shown_on_);
}

void OutputMux::emit_line(int rank, Stream stream, std::string_view line) {
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  if (rank == 0 && is_terminal(stream)) line = last_overwrite(line);  // the text before it is overwritten
  const std::string prefix = prefix_of(rank);
  std::string text = prefix;
  text += safe_text(line, prefix);
  text += '\n';
  emit_(stream, text);
}

void OutputMux::hide_unfinished() {
  if (!is_shown_) return;
  emit_(shown_on_, ERASE_LINE);
  is_shown_ = false;
}

void OutputMux::show_unfinished(Stream stream) {
  const auto found = unfinished_.find({0, stream});
  if (!is_terminal(stream) || found == unfinished_.end() || found->second.empty()) return;
  const std::string text = prefix_of(0) + safe_text(last_overwrite(found->second));
  // The last column stays free, because a terminal may wrap when it is filled.
  emit_(stream, fit_columns(text, options_.columns - 1));
  is_shown_ = true;
}

}  // namespace lockstep
