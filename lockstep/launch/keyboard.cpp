#include "lockstep/launch/keyboard.h"

#include "lockstep/os/pipe.h"
#include "lockstep/os/terminal.h"

namespace lockstep {

Keyboard::Keyboard(int terminal, Fd rank_input) : terminal_(terminal), rank_input_(std::move(rank_input)) {
  if (!rank_input_.valid()) return;
  set_nonblocking(rank_input_.get());
  typed_ = open_session_terminal();
}

void Keyboard::add_to(PollSet& wait) const {
  if (!rank_input_.valid()) return;
  if (!pending_.empty()) {
    wait.want_write(rank_input_.get());
  } else if (is_in_foreground(terminal_)) {
    wait.want_read(typed_.get());
  }
}

void Keyboard::carry(const PollSet& wait) {
  if (!rank_input_.valid()) return;
  if (pending_.empty() && wait.is_ready(typed_.get()) && is_in_foreground(terminal_)) {
    has_ended_ = read_available(typed_.get(), pending_) == ReadResult::END && is_in_foreground(terminal_);
  }
  if (!pending_.empty()) {
    const long put = write_available(rank_input_.get(), pending_);
    if (put < 0) return rank_input_.reset();  // rank 0 has ended or closed its input
    pending_.erase(0, static_cast<std::size_t>(put));
  }
  if (pending_.empty() && has_ended_) rank_input_.reset();
}

}  // namespace lockstep
