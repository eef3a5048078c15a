// Keyboard: passes the keys typed on the launcher's terminal to rank 0. Rank 0 is not in the terminal's
// foreground group, so it could not read the terminal itself. The front process reads it, and only while it
// is in the foreground.
#pragma once

#include <string>

#include "lockstep/os/fd.h"
#include "lockstep/os/poll_set.h"

namespace lockstep {

class Keyboard {
 public:
  Keyboard(int terminal, Fd rank_input);  // with an invalid `rank_input` it does nothing

  void add_to(PollSet& wait) const;
  void carry(const PollSet& wait);

 private:
  int terminal_;
  Fd typed_;  // the same terminal, opened for non-blocking reads
  Fd rank_input_;
  std::string pending_;
  bool has_ended_ = false;  // Ctrl-D
};

}  // namespace lockstep
