// Makes text that a rank printed harmless on a terminal. It may use tabs, colours and "erase to the end of
// the line". Everything else that moves the cursor, or looks like a line that the rank did not print, is
// taken out.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

// Keeps valid UTF-8, tabs, SGR sequences (ESC [ digits and semicolons m) and ESC [ K; other control
// characters, C1 controls and bytes that are no UTF-8 become \xNN. A carriage return is kept, and
// `after_return` follows it, so that what overwrites a line starts like one. A text with colours ends with
// the colours reset.
std::string safe_text(std::string_view text, std::string_view after_return = "");

// The beginning of safe text that fits into `columns`, colours not counted (a character counts as one
// column).
std::string fit_columns(std::string_view safe, std::size_t columns);

}  // namespace lockstep
