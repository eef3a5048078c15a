// Console: the launcher's own standard output and error. It writes the lines of the ranks, each with its
// rank's number, and the launcher's own lines. A full disk under standard output does not stop a job: the
// launcher reports it once on standard error and drops the output. Never blocks. While is_congested(), the
// supervisor leaves the ranks' output in their pipes. So a rank that prints faster than the reader reads has
// to wait, as it would without a launcher.
#pragma once

#include <string>
#include <string_view>

#include "lockstep/base/deadline.h"
#include "lockstep/launch/output_mux.h"
#include "lockstep/os/output_descriptor.h"
#include "lockstep/os/poll_set.h"

namespace lockstep {

class Console {
 public:
  explicit Console(bool prefix, int first_rank = 0);

  void feed(int rank, Stream stream, std::string_view bytes) { mux_.feed(rank, stream, bytes); }
  void close(int rank, Stream stream) { mux_.close(rank, stream); }
  void line(std::string_view text);  // a line of the launcher, written at once

  bool is_congested() const { return out_.pending() + err_.pending() > (1U << 20U); }
  bool is_broken() const { return out_.is_broken(); }  // the reader of standard output is gone
  std::string why_broken() const;
  void add_to(PollSet& wait) const;
  void flush();
  bool is_empty() const { return out_.pending() + err_.pending() == 0; }

 private:
  OutputDescriptor out_;
  OutputDescriptor err_;
  bool is_one_file_;  // both are the same file: one queue keeps their order
  bool said_lost_ = false;
  OutputMux mux_;
};

// Columns that rank 0 may fill on the terminal; 0 if standard output is not a terminal.
int columns_for_ranks(bool prefix);

}  // namespace lockstep
