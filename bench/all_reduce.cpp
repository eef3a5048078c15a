// Time of one all_reduce of float32 by size, in memory of the group's and in private memory, on freshly written data.
//
//   lockstep run -n 2 build/bench/all_reduce
//
// Rank 0 prints one JSON object per line: bytes, memory, median and best time in microseconds (from a barrier to this rank's
// return). bench/peers/all_reduce.py is the same over Gloo.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <span>
#include <vector>

#include "lockstep/comm/collectives.h"
#include "lockstep/job/job.h"

namespace {

using Clock = std::chrono::steady_clock;

void measure(const char* memory, std::span<float> data) {
  const lockstep::ProcessGroup& world = lockstep::world();
  const std::size_t bytes = data.size_bytes();
  const std::size_t rounds =
      std::clamp<std::size_t>((std::size_t{256} << 20U) / std::max<std::size_t>(bytes, 1), 20, 2000);
  std::vector<double> times;
  for (std::size_t round = 0; round < rounds; ++round) {
    std::fill(data.begin(), data.end(), static_cast<float>(world.rank() + 1));
    lockstep::comm::barrier(world);
    const auto start = Clock::now();
    lockstep::comm::all_reduce(world, data);
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  std::sort(times.begin(), times.end());
  if (world.rank() != 0) return;
  std::printf("{\"bytes\": %zu, \"memory\": \"%s\", \"median_us\": %.2f, \"best_us\": %.2f}\n", bytes, memory,
              times[times.size() / 2], times[0]);
}

}  // namespace

int main() {
  lockstep::init_process_group();
  for (const std::size_t count : {2UL, 256UL, 16384UL, 262144UL, 6553600UL}) {
    const auto shared = lockstep::world().allocate_shared(count * sizeof(float));
    measure("shared", {static_cast<float*>(shared.get()), count});
    std::vector<float> own(count);
    measure("private", own);
  }
  return 0;
}
