// Time of one all_reduce of float32 by size, in memory of the group's and in private memory, on freshly written data.
//
//   lockstep run -n 2 build/bench/all_reduce
//
// Every call is timed by itself: each rank writes its data, a barrier, the call. Its time is from the last rank's start to
// the last rank's end; all ranks read one clock. Rank 0 prints one JSON object per line: bytes, memory, median and best time
// in microseconds. bench/peers/all_reduce.py is the same over Gloo.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

#include "lockstep/comm/collectives.h"
#include "lockstep/job/job.h"

namespace {

double microseconds_now() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The largest of the ranks' values, element by element.
std::vector<double> last_of_all_ranks(std::vector<double> moments) {
  lockstep::comm::all_reduce(lockstep::world(), std::span(moments), lockstep::ReduceOp::MAX);
  return moments;
}

void measure(const char* memory, std::span<float> data) {
  const lockstep::ProcessGroup& world = lockstep::world();
  const std::size_t rounds = std::clamp<std::size_t>((std::size_t{256} << 20U) / data.size_bytes(), 20, 2000);
  std::vector<double> starts;
  std::vector<double> ends;
  for (std::size_t round = 0; round < rounds; ++round) {
    std::fill(data.begin(), data.end(), static_cast<float>(world.rank() + 1));
    lockstep::comm::barrier(world);
    starts.push_back(microseconds_now());
    lockstep::comm::all_reduce(world, data);
    ends.push_back(microseconds_now());
  }
  const float expected = static_cast<float>(world.size() * (world.size() + 1)) / 2.0F;
  if (std::count(data.begin(), data.end(), expected) != static_cast<std::ptrdiff_t>(data.size())) {
    std::fprintf(stderr, "all_reduce of %zu bytes: wrong sum\n", data.size_bytes());
    std::exit(1);
  }

  starts = last_of_all_ranks(starts);
  ends = last_of_all_ranks(ends);
  std::vector<double> times;
  for (std::size_t round = 0; round < rounds; ++round) times.push_back(ends[round] - starts[round]);
  std::sort(times.begin(), times.end());
  if (world.rank() != 0) return;
  std::printf("{\"bytes\": %zu, \"memory\": \"%s\", \"median_us\": %.2f, \"best_us\": %.2f}\n",
              data.size_bytes(), memory, times[times.size() / 2], times[0]);
}

}  // namespace

int main() {
  lockstep::init_process_group();
  for (const std::size_t bytes : {8UL, 1UL << 10U, 64UL << 10U, 1UL << 20U, 25UL << 20U}) {
    const auto shared = lockstep::world().allocate_shared(bytes);
    measure("shared", {static_cast<float*>(shared.get()), bytes / sizeof(float)});
    std::vector<float> own(bytes / sizeof(float));
    measure("private", own);
  }
  return 0;
}
