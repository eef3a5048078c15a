// RankProcess: one running rank, for its launcher: the process, the two pipes that it prints into, its log
// file and its last lines.
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
  int kept = StreamChoice::BOTH;  // the streams that are written to the log
  const sigset_t* signal_mask = nullptr;
};

class RankProcess {
 public:
  // An empty text means that the stream has ended.
  using OnOutput = std::function<void(int rank, Stream, std::string_view)>;

  // Starts the rank. With an invalid `log` there is no log. Throws SystemError.
  RankProcess(int rank, const RankStart& start, Fd log);

  int rank() const { return rank_; }
  pid_t pid() const { return child_.pid; }
  bool has_ended() const { return ended_; }

  void add_to(PollSet& wait) const;
  std::optional<int> start_error(const PollSet& wait);  // errno, once, if the program could not be run
  void read_output(const PollSet& wait, const OnOutput& on_output);  // reads the available output
  void drain_output(const OnOutput& on_output);  // reads all that is in the pipes, and closes them
  std::optional<ExitStatus> poll();              // reaps it; returns the status once, when it has just ended
  void signal_group(int signal) const;           // for the rank and its children; no effect once it has ended
  std::vector<std::string> last_lines() const { return last_lines_.lines(); }
  int log_error() const { return log_error_; }  // errno if the log could not be written; 0 if it is complete

 private:
  struct Source {
    Stream stream;
    Fd pipe;
    std::string unfinished;
  };

  bool read_source(Source& source, const OnOutput& on_output);  // false: no more output now
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
