// Numbers of parameters and of bytes, as people write and read them. Pure.
//
//   parse_count("--params", "7.5B")     // 7.5e9; K, M, B and T are powers of 1000
//   parse_bytes("--memory", "80GB")     // 80e9; kB to TB are powers of 1000, KiB to TiB of 1024
//   bytes_text(1.875e9)                 // "1.88 GB"
#pragma once

#include <string>
#include <string_view>

namespace lockstep::cli {

// A whole number from 1 on. UsageError that names the option for anything else.
double parse_count(std::string_view option, const std::string& text);
double parse_bytes(std::string_view option, const std::string& text);

// Three significant digits, a half rounded up: "41.3 GB", "512 B". Powers of 1000.
std::string bytes_text(double bytes);
// The same of parameters: "7.50 B", "124 M".
std::string count_text(double count);

}  // namespace lockstep::cli
