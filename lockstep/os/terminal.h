// What a launcher asks of a terminal.
#pragma once

#include "lockstep/os/fd.h"

namespace lockstep {

bool is_terminal(int fd);
int terminal_columns(int fd);   // 80 when unknown
bool is_in_foreground(int fd);  // this process's group may read from the terminal `fd` without being stopped

// The terminal of this process's session, opened once more, for reads that never block: a key like Ctrl-C
// throws away what was typed before it, also between poll() and read(), and while it does poll() may call an
// empty terminal readable. Others who share the terminal's descriptor notice nothing. Invalid when the
// session has no terminal.
Fd open_session_terminal();

}  // namespace lockstep
