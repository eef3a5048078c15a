// What the flight recorder costs a call: both of its calls, and the two readings of the clock within them.
//
//   build/bench/flight_recorder
//
// One JSON object per line, as the other benchmarks print: "what", and the median and the best of the batches
// in nanoseconds a call. The ring is warm, as that of a group in use is.
#include "lockstep/comm/trace/flight_recorder.h"

#include <algorithm>
#include <cstdio>
#include <vector>

namespace {

using namespace lockstep;  // NOLINT(google-build-using-namespace)

constexpr int BATCHES = 1001;
constexpr std::uint64_t CALLS = 1000;

template <typename Body> void measure(const char* what, const Body& body) {
  std::vector<double> times;
  for (int batch = 0; batch < BATCHES; ++batch) {
    const std::int64_t start = CycleClock::steady_nanoseconds();
    for (std::uint64_t i = 1; i <= CALLS; ++i) body(i);
    times.push_back(static_cast<double>(CycleClock::steady_nanoseconds() - start) / CALLS);
  }
  std::sort(times.begin(), times.end());
  std::printf("{\"what\": \"%s\", \"median_ns\": %.2f, \"best_ns\": %.2f}\n", what, times[BATCHES / 2],
              times[0]);
}

}  // namespace

int main() {
  const auto memory = TraceMemory::create(0, 1);
  FlightRecorder recorder(memory, {"world", "shm"});
  const CycleClock clock = memory->clock();
  std::uint64_t sum = 0;
  measure(clock.counts_cycles() ? "two readings of the cycle counter" : "two readings of steady_clock",
          [&](std::uint64_t) { sum += clock.now() + clock.now(); });
  measure("record of a call", [&](std::uint64_t i) {
    const Call call{Verb::ALL_REDUCE, DType::FLOAT32, ReduceOp::SUM, Purpose::PROGRAM, 0, i};
    recorder.finish(recorder.start(call, i), FlightRecorder::DONE);
  });
  return sum == 0 ? 1 : 0;
}
