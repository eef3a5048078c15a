// safe_text: makes text that a rank printed harmless on a terminal. Tabs, colours and "erase to the end of
// the line" are allowed. Everything else that moves the cursor, or could imitate a line that the rank did not
// print, is replaced.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

// Keeps valid UTF-8, tabs, SGR sequences (ESC [ digits and semicolons m) and ESC [ K. Other control
// characters, C1 controls and bytes that are not UTF-8 become \xNN. A carriage return is kept and followed by
// `after_return`, so that text that overwrites a line starts with the same prefix. Text with colours ends
// with a reset.
std::string safe_text(std::string_view text, std::string_view after_return = "");

// The beginning of safe text that fits into `columns`. Colours take no column, and every other character
// takes one.
std::string fit_columns(std::string_view safe, std::size_t columns);

}  // namespace lockstep
