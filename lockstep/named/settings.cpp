#include "lockstep/named/settings.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/broadcast.h"

namespace lockstep::named {
namespace {

constexpr long YEAR = 365L * 24 * 3600;

// Horovod's flags are on for any number but 0.
bool is_on(const char* name) { return env_number(name, 0, 1L << 30).value_or(0) != 0; }

// Milliseconds with a fraction, such as 3.5.
std::chrono::microseconds milliseconds_of(const char* name, std::chrono::microseconds otherwise) {
  const auto text = env(name);
  if (!text) return otherwise;
  constexpr double MOST = 60000;
  char* end = nullptr;
  const double value = std::strtod(text->c_str(), &end);
  if (end != text->c_str() + text->size() || !(value >= 0) || value > MOST)
    throw InvalidArgument(str("environment: ", name, "=", in_quotes(*text),
                              " must be a number of milliseconds from 0 to ", MOST));
  return std::chrono::microseconds(std::llround(value * 1000));
}

}  // namespace

void name_variables_without_counterpart() {
  std::string names;
  for (const std::string& name : unknown_variables("HOROVOD_")) names += (names.empty() ? "" : ", ") + name;
  if (names.empty()) return;
  log(LogLevel::WARNING, str("set without effect, because Lockstep has no counterpart: ", printable(names)));
}

Settings settings_of_environment() {
  Settings settings;
  constexpr long MOST_BYTES = 1L << 40;
  if (const auto bytes = env_number("HOROVOD_FUSION_THRESHOLD", 0, MOST_BYTES))
    settings.fusion_threshold = static_cast<std::size_t>(*bytes);
  settings.cycle_time = milliseconds_of("HOROVOD_CYCLE_TIME", settings.cycle_time);
  if (const auto names = env_number("HOROVOD_CACHE_CAPACITY", 0, 1L << 20))
    settings.cache_capacity = static_cast<std::size_t>(*names);
  if (const auto check = env_number("HOROVOD_STALL_CHECK_TIME_SECONDS", 1, YEAR))
    settings.stall_check = std::chrono::seconds(*check);
  if (is_on("HOROVOD_STALL_CHECK_DISABLE")) settings.stall_check = {};
  if (const auto shutdown = env_number("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", 0, YEAR))
    settings.stall_shutdown = std::chrono::seconds(*shutdown);
  if (settings.stall_shutdown.count() > 0 && settings.stall_shutdown < settings.stall_check) {
    log(LogLevel::WARNING,
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS is ignored: it is less than HOROVOD_STALL_CHECK_TIME_SECONDS");
    settings.stall_shutdown = {};
  }
  settings.timeline = env("HOROVOD_TIMELINE").value_or("");
  settings.timeline_marks_cycles = is_on("HOROVOD_TIMELINE_MARK_CYCLES");
  return settings;
}

Settings agreed_settings(const ProcessGroup& group, Settings own) {
  std::array<std::int64_t, 5> numbers = {
      static_cast<std::int64_t>(own.fusion_threshold), own.cycle_time.count(),
      static_cast<std::int64_t>(own.cache_capacity), own.stall_check.count(), own.stall_shutdown.count()};
  comm::broadcast(group, std::span<std::int64_t>(numbers), GroupRank{0});
  own.fusion_threshold = static_cast<std::size_t>(numbers[0]);
  own.cycle_time = std::chrono::microseconds(numbers[1]);
  own.cache_capacity = static_cast<std::size_t>(numbers[2]);
  own.stall_check = std::chrono::milliseconds(numbers[3]);
  own.stall_shutdown = std::chrono::milliseconds(numbers[4]);
  return own;
}

}  // namespace lockstep::named
