// Times all_reduce of bfloat16 in the group's memory: half_sums BYTES... Rank 0 prints a JSON object for
// each, with the median of its own times in microseconds.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "lockstep/comm/collectives/collectives.h"
#include "lockstep/job/job.h"

namespace {

double median_us(const lockstep::ProcessGroup& world, std::size_t bytes) {
  using lockstep::BFloat16;
  const int calls = bytes <= (1U << 16U) ? 200 : 12;
  const auto memory = world.allocate_shared(bytes);
  const std::span<BFloat16> x(static_cast<BFloat16*>(memory.get()), bytes / sizeof(BFloat16));
  std::vector<double> times;
  for (int call = 0; call < calls; ++call) {
    std::fill(x.begin(), x.end(), BFloat16{0x3f80});  // 1
    lockstep::comm::barrier(world);
    const auto begin = std::chrono::steady_clock::now();
    lockstep::comm::all_reduce(world, x);
    times.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
  }
  std::nth_element(times.begin(), times.begin() + calls / 2, times.end());
  return times[static_cast<std::size_t>(calls / 2)];
}

}  // namespace

int main(int argc, char** argv) {
  lockstep::init_process_group();
  for (int i = 1; i < argc; ++i) {
    const double median = median_us(lockstep::world(), std::stoul(argv[i]));
    if (lockstep::get_rank() == 0) std::printf("{\"bytes\": %s, \"median_us\": %.1f}\n", argv[i], median);
  }
  lockstep::destroy_process_group();
}
