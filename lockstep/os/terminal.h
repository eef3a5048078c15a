// The launcher's questions about a terminal.
#pragma once

#include "lockstep/os/fd.h"

namespace lockstep {

bool is_terminal(int fd);
int terminal_columns(int fd);   // 80 if unknown
bool is_in_foreground(int fd);  // this process's group may read from the terminal `fd` without being stopped

// Opens the terminal of this process's session again, for non-blocking reads. A key such as Ctrl-C discards
// the input before it, also between poll() and read(), and meanwhile poll() may report an empty terminal as
// readable. Other users of the terminal's descriptor are not affected. Invalid if the session has no
// terminal.
Fd open_session_terminal();

}  // namespace lockstep
