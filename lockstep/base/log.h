// Where the library's few messages go (slow peers, fallbacks taken). The library itself never prints: with no
// sink set, warnings and errors are dropped by programs that link the library alone and shown by programs
// that call init_process_group() under a launcher, which installs a sink that writes one line to stderr.
//
//   set_log_sink([](LogLevel level, const std::string& line) { my_logger(line); });
//
// Threads: the sink may be called from any thread; set it before any group exists.
#pragma once

#include <functional>
#include <string>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

enum class LogLevel { INFO, WARNING, ERROR };

using LogSink = std::function<void(LogLevel, const std::string&)>;

void set_log_sink(LogSink sink);
bool has_log_sink();
void log(LogLevel level, const std::string& line);

}  // namespace lockstep
