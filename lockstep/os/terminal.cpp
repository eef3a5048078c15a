#include "lockstep/os/terminal.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace lockstep {

bool is_terminal(int fd) { return isatty(fd) == 1; }

int terminal_columns(int fd) {
  winsize size{};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

bool is_in_foreground(int fd) { return tcgetpgrp(fd) == getpgrp(); }

Fd open_session_terminal() { return Fd(open("/dev/tty", O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)); }

}  // namespace lockstep
