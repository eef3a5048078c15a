#include "lockstep/launch/console.h"

#include "lockstep/os/pipe.h"
#include "lockstep/os/terminal.h"

namespace lockstep {
namespace {

OutputMuxOptions mux_options(bool prefix) {
  const bool out = is_terminal(STANDARD_OUTPUT);
  const bool err = is_terminal(STANDARD_ERROR);
  const int columns = out || err ? terminal_columns(out ? STANDARD_OUTPUT : STANDARD_ERROR) : 80;
  return {prefix, out, err, static_cast<std::size_t>(columns)};
}

}  // namespace

Console::Console(bool prefix)
    : out_(STANDARD_OUTPUT),
      err_(STANDARD_ERROR),
      is_one_file_(is_same_file(STANDARD_OUTPUT, STANDARD_ERROR)),
      mux_(mux_options(prefix), [this](Stream stream, std::string_view text) {
        (stream == Stream::OUT || is_one_file_ ? out_ : err_).write(text);
      }) {}

void Console::add_to(PollSet& wait) const {
  if (out_.pending() > 0) wait.want_write(out_.descriptor());
  if (err_.pending() > 0) wait.want_write(err_.descriptor());
}

void Console::flush() {
  out_.flush();
  err_.flush();
}

int columns_for_ranks(bool prefix) {
  if (!is_terminal(STANDARD_OUTPUT)) return 0;
  const int columns = terminal_columns(STANDARD_OUTPUT) - (prefix ? 4 : 0);  // "[0] "
  return columns > 1 ? columns - 1 : 1;
}

}  // namespace lockstep
