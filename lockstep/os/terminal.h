// What a launcher asks of a terminal.
#pragma once

namespace lockstep {

bool is_terminal(int fd);
int terminal_columns(int fd);   // 80 when unknown
bool is_in_foreground(int fd);  // this process's group may read from the terminal `fd` without being stopped

}  // namespace lockstep
