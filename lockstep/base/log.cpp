#include "lockstep/base/log.h"

#include <memory>
#include <mutex>
#include <utility>

namespace lockstep {
namespace {

std::mutex sink_mutex;
std::shared_ptr<const LogSink>& sink_slot() {
  // Never deleted: outlives every static destructor that may still log.
  static auto* slot = new std::shared_ptr<const LogSink>;
  return *slot;
}

}  // namespace

void set_log_sink(LogSink sink) {
  const std::lock_guard lock(sink_mutex);
  sink_slot() = sink ? std::make_shared<const LogSink>(std::move(sink)) : nullptr;
}

bool has_log_sink() {
  const std::lock_guard lock(sink_mutex);
  return sink_slot() != nullptr;
}

void log(LogLevel level, const std::string& line) {
  std::shared_ptr<const LogSink> sink;
  {
    const std::lock_guard lock(sink_mutex);
    sink = sink_slot();
  }
  if (sink) (*sink)(level, line);
}

}  // namespace lockstep
