// Times of collectives of float32 on the world group, in memory of the group's and in private memory
// (timed_collectives.h).
//
//   lockstep run -n 2 build/bench/collectives                  # all of them
//   lockstep run -n 2 build/bench/collectives all_reduce 8 65536  # some
#include "bench/bare_copies.h"
#include "bench/our_calls.h"
#include "bench/timed_collectives.h"
#include "lockstep/job/job.h"

int main(int argc, char** argv) {
  lockstep::init_process_group();
  bench::Ours ours;
  for (const bench::Case& which : bench::cases_of(std::span(argv + 1, argv + argc))) {
    const bench::Counts counts = bench::counts_of(which, ours.size());
    std::vector<float> input(counts.input);
    std::vector<float> output(counts.output);
    bench::time_beside_copies(ours, which, "private", input, output);
    if (counts.input == 0) continue;
    const auto shared = lockstep::world().allocate_shared(counts.input * sizeof(float));
    bench::time_collective(ours, which, "shared", {static_cast<float*>(shared.get()), counts.input}, output);
  }
}
