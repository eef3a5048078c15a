#include "lockstep/launch/console.h"

#include <cerrno>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/os/pipe.h"
#include "lockstep/os/terminal.h"

namespace lockstep {
namespace {

// Returns whether `fd` is a terminal that can erase a line.
bool is_screen(int fd) { return is_terminal(fd) && env("TERM") != "dumb"; }

OutputMuxOptions mux_options(bool prefix, int first_rank) {
  const bool out = is_screen(STANDARD_OUTPUT);
  const bool err = is_screen(STANDARD_ERROR);
  const int columns = out || err ? terminal_columns(out ? STANDARD_OUTPUT : STANDARD_ERROR) : 80;
  return {prefix, first_rank, out, err, static_cast<std::size_t>(columns)};
}

}  // namespace

Console::Console(bool prefix, int first_rank)
    : out_(STANDARD_OUTPUT),
      err_(STANDARD_ERROR),
      is_one_file_(is_same_file(STANDARD_OUTPUT, STANDARD_ERROR)),
      mux_(mux_options(prefix, first_rank), [this](Stream stream, std::string_view text) {
        (stream == Stream::OUT || is_one_file_ ? out_ : err_).append(text);
      }) {}

void Console::add_to(PollSet& wait) const {
  if (out_.pending() > 0) wait.want_write(out_.descriptor());
  if (err_.pending() > 0) wait.want_write(err_.descriptor());
}

void Console::line(std::string_view text) {
  mux_.launcher_line(text);
  flush();
}

void Console::flush() {
  out_.flush();
  err_.flush();
  if (out_.error() == 0 || out_.is_broken() || said_lost_) return;
  said_lost_ = true;
  const SystemError why("standard output cannot be written", out_.error());
  line(
      str(why.what(), "; the ranks' output is lost there until there is space again, and the job continues"));
}

std::string Console::why_broken() const {
  if (out_.error() == EPIPE) return "the reader of the output is gone";
  return SystemError("standard output cannot be written", out_.error()).what();
}

int columns_for_ranks(bool prefix) {
  if (!is_screen(STANDARD_OUTPUT)) return 0;
  const int columns = terminal_columns(STANDARD_OUTPUT) - (prefix ? 4 : 0);  // "[0] "
  return columns > 1 ? columns - 1 : 1;
}

}  // namespace lockstep
