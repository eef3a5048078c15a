// One running rank as its launcher sees it: the process, the two pipes it prints into, its log file and its
// last lines.
#pragma once

#include <array>
#include <csignal>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/launch/last_lines.h"
#include "lockstep/launch/launch_spec.h"
#include "lockstep/launch/output_mux.h"
#include "lockstep/os/fd.h"
#include "lockstep/os/poll_set.h"

namespace lockstep {

struct RankStart {
  std::string executable;
  std::vector<std::string> command;
  std::vector<std::string> environment;
  std::vector<int> cpus;
  std::vector<int> inherited;
  int standard_input = -1;        // -1: /dev/null
  int kept = StreamChoice::BOTH;  // the streams that go into the log
  const sigset_t* signal_mask = nullptr;
};

class RankProcess {
 public:
  using OnOutput =
      std::function<void(int rank, Stream, std::string_view)>;  // an empty text: the stream has ended

  // Starts it. `log` may be invalid: then nothing is kept. Fails: SystemError.
  RankProcess(int rank, const RankStart& start, Fd log);

  int rank() const { return rank_; }
  pid_t pid() const { return child_.pid; }
  bool has_ended() const { return ended_; }

  void add_to(PollSet& wait) const;
  std::optional<int> start_error(const PollSet& wait);  // errno, once, when the program could not be run
  void read_output(const PollSet& wait, const OnOutput& on_output);  // what can be read at once
  void drain_output(const OnOutput& on_output);                      // all that is in the pipes; closes them
  std::optional<ExitStatus> poll();     // reaps it; a value once, when it has just ended
  void signal_group(int signal) const;  // the rank and what it started; nothing once it ended
  std::vector<std::string> last_lines() const { return last_lines_.lines(); }
  int log_error() const { return log_error_; }  // errno, when the log could not be written; 0: it is complete

 private:
  struct Source {
    Stream stream;
    Fd pipe;
    std::string unfinished;
  };

  bool read_source(Source& source, const OnOutput& on_output);  // false: nothing more now
  void end_source(Source& source, const OnOutput& on_output);
  void write_log(Stream stream, std::string_view bytes);

  int rank_;
  ChildProcess child_;
  bool ended_ = false;
  std::array<Source, 2> sources_;
  Fd log_;
  int kept_;
  int log_error_ = 0;
  LastLines last_lines_;
};

}  // namespace lockstep
