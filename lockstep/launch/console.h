// The launcher's own standard output and error: the lines of the ranks, each with its rank's name, and the
// launcher's lines. flush() writes what the ranks printed. A full disk under standard output stops no job:
// the launcher says so once on standard error, and drops the output that has no room. Never blocks. While
// is_congested(), the supervisor leaves the output of the ranks in their pipes, so a rank that prints faster
// than its reader reads waits, as it would without a launcher.
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
  void line(std::string_view text);  // of the launcher, at once

  bool is_congested() const { return out_.pending() + err_.pending() > (1U << 20U); }
  bool is_broken() const { return out_.is_broken(); }  // nobody reads standard output any more
  std::string why_broken() const;
  void add_to(PollSet& wait) const;
  void flush();
  bool is_empty() const { return out_.pending() + err_.pending() == 0; }

 private:
  OutputDescriptor out_;
  OutputDescriptor err_;
  bool is_one_file_;  // both lead to the same place: one queue keeps their order
  bool said_lost_ = false;
  OutputMux mux_;
};

// Columns that rank 0 may fill on the terminal, 0 when standard output is none.
int columns_for_ranks(bool prefix);

}  // namespace lockstep
