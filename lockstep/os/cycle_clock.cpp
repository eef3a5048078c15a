#include "lockstep/os/cycle_clock.h"

#include <fstream>
#include <string>

namespace lockstep {
namespace {

bool has_word(const std::string& line, const std::string& word) {
  return (line + ' ').find(' ' + word + ' ') != std::string::npos;
}

bool kernel_trusts_the_counter() {
#if defined(__x86_64__)
  std::ifstream source("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  std::string name;
  if (source >> name && name == "tsc") return true;
  std::ifstream processors("/proc/cpuinfo");
  bool any = false;
  for (std::string line; std::getline(processors, line);) {
    if (!line.starts_with("flags")) continue;
    if (!has_word(line, "constant_tsc") || !has_word(line, "nonstop_tsc")) return false;
    any = true;
  }
  return any;
#else
  return false;
#endif
}

}  // namespace

CycleClock CycleClock::of_this_machine() {
  static const bool counts_cycles = kernel_trusts_the_counter();
  return CycleClock(counts_cycles);
}

// Keeps the pair with the shortest reading time of a few tries, because this thread may lose its core between
// the two clocks.
CycleClock::Pair CycleClock::pair() const {
  constexpr int TRIES = 5;
  Pair best;
  std::uint64_t narrowest = 0;
  for (int i = 0; i < TRIES; ++i) {
    const std::uint64_t before = now();
    const std::int64_t moment = steady_nanoseconds();
    const std::uint64_t width = now() - before;
    if (i == 0 || width < narrowest) {
      narrowest = width;
      best = {before + width / 2, moment};
    }
  }
  return best;
}

std::int64_t CycleClock::nanoseconds(std::uint64_t count, const Pair& first, const Pair& second) {
  const auto counts = static_cast<double>(static_cast<std::int64_t>(second.count - first.count));
  const auto span = static_cast<double>(second.nanoseconds - first.nanoseconds);
  const double rate = counts > 0 ? span / counts : 1.0;
  // Counts back from the later pair, because most records lie close to it, where the error is smallest.
  const auto back = static_cast<double>(static_cast<std::int64_t>(second.count - count));
  return second.nanoseconds - static_cast<std::int64_t>(back * rate);
}

}  // namespace lockstep
