// The sink of the library's few messages (slow peers, fallbacks taken). The library itself never prints.
// Without a sink, warnings and errors are dropped. A program that calls init_process_group() under a launcher
// gets a sink that writes one line to stderr.
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
