// Timeline: what happened to each name and when, as a trace of Chrome (chrome://tracing, ui.perfetto.dev).
//
//   Timeline timeline;
//   timeline.start("timeline.json", /*marks_cycles=*/false);
//   timeline.span("grad.conv1", "NEGOTIATE_ALLREDUCE", announced, agreed);
//   timeline.stop();                                         // now the file is complete
//
// Each name is a row. Its spans are NEGOTIATE_X (from the first announcement to the last), X, and within X
// MEMCPY_IN_FUSION_BUFFER, the verb over the backend, and MEMCPY_OUT_FUSION_BUFFER. Events are written every
// few seconds and by stop(); until then the file is one that Chrome reads, without its closing bracket.
//
// A file that cannot be written ends the timeline with a warning in the log; training goes on.
// Threads: own lock.
#pragma once

#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "lockstep/named/negotiation.h"
#include "lockstep/os/append_file.h"

namespace lockstep::named {

// A verb as phases are written: "allreduce" is "ALLREDUCE".
std::string upper_case(std::string_view word);

class Timeline {
 public:
  // Throws SystemError if the file cannot be made.
  void start(const std::string& path, bool marks_cycles);
  void stop();
  bool is_on();

  void span(const std::string& name, std::string_view phase, Time begin, Time end);
  void cycle(Time begin);

 private:
  void add(const std::string& event);
  void write();
  int row_of(const std::string& name);

  std::mutex mutex_;
  // guarded by mutex_
  std::optional<AppendFile> file_;
  std::string text_;
  std::unordered_map<std::string, int> rows_;
  Time begun_;
  Time written_;
  bool marks_cycles_ = false;
};

}  // namespace lockstep::named
