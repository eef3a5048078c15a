// What a call through the C interface costs beside the same call of the core. all_reduce of float32 in
// private memory, one call behind the other: batches of calls by each way in turn, so that whatever else
// changes meets all alike.
//
//   lockstep run -n 2 build/bench/c_interface
//
// Rank 0 prints one JSON object for each size: the median over batches of microseconds of one call by the
// core ("core"), by C ("c"), and by C with a work that is waited for and freed ("c_work").
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

#include "lockstep/c/lockstep.h"
#include "lockstep/comm/collectives/collectives.h"
#include "lockstep/job/job.h"

namespace {

constexpr std::size_t BATCHES = 41;

void require(int code) {
  if (code == LOCKSTEP_OK) return;
  std::fprintf(stderr, "%s\n", lockstep_error_text());
  std::exit(1);
}

void by_core(std::span<float> x) {
  lockstep::comm::all_reduce(lockstep::world(), x, lockstep::ReduceOp::MAX);
}

void by_c(std::span<float> x) {
  require(lockstep_all_reduce(LOCKSTEP_WORLD, x.data(), x.size(), LOCKSTEP_FLOAT32, LOCKSTEP_MAX, nullptr));
}

void by_c_work(std::span<float> x) {
  lockstep_work work = 0;
  require(lockstep_all_reduce(LOCKSTEP_WORLD, x.data(), x.size(), LOCKSTEP_FLOAT32, LOCKSTEP_MAX, &work));
  require(lockstep_work_wait(work, 0));
  require(lockstep_work_free(work));
}

// Microseconds of one call of a batch.
double time_batch(void (*call)(std::span<float>), std::span<float> x, std::size_t calls) {
  lockstep::comm::barrier(lockstep::world());
  const auto begin = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < calls; ++i) call(x);
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
  return time.count() / static_cast<double>(calls);
}

double median(std::vector<double> times) {
  std::nth_element(times.begin(), times.begin() + BATCHES / 2, times.end());
  return times[BATCHES / 2];
}

void time_size(std::size_t bytes) {
  std::vector<float> x(bytes / sizeof(float), 1);
  const std::size_t calls = std::clamp<std::size_t>((32UL << 20U) / bytes, 8, 2000);
  std::vector<double> core;
  std::vector<double> c;
  std::vector<double> work;
  for (std::size_t batch = 0; batch < BATCHES; ++batch) {
    core.push_back(time_batch(by_core, x, calls));
    c.push_back(time_batch(by_c, x, calls));
    work.push_back(time_batch(by_c_work, x, calls));
  }
  if (lockstep::get_rank() != 0) return;
  std::printf("{\"bytes\": %zu, \"core\": %.3f, \"c\": %.3f, \"c_work\": %.3f}\n", bytes, median(core),
              median(c), median(work));
}

}  // namespace

int main() {
  require(lockstep_init(nullptr));
  for (const std::size_t bytes : {4UL, 1UL << 10U, 64UL << 10U, 1UL << 20U}) time_size(bytes);
  require(lockstep_shutdown());
}
