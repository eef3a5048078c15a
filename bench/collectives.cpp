// Times of collectives of float32 on the world group, in memory of the group's and in private memory
// (timed_collectives.h).
//
//   lockstep run -n 2 build/bench/collectives                  # all of them
//   lockstep run -n 2 build/bench/collectives all_reduce 8 65536  # some
#include "lockstep/comm/collectives/collectives.h"
#include "bench/bare_copies.h"
#include "bench/timed_collectives.h"
#include "lockstep/job/job.h"

namespace {

using namespace lockstep;  // NOLINT(google-build-using-namespace)

struct Ours {
  int rank() const { return get_rank(); }
  int size() const { return get_world_size(); }
  void barrier() const { comm::barrier(world()); }
  void maxima(std::vector<double>& values) const {
    comm::all_reduce(world(), std::span(values), ReduceOp::MAX);
  }

  void call(const bench::Case& which, std::span<float> input, std::span<float> output) const {
    const std::span<const float> given = input;
    if (which.verb == "barrier") comm::barrier(world());
    if (which.verb == "all_reduce") comm::all_reduce(world(), input);
    if (which.verb == "reduce_scatter") comm::reduce_scatter(world(), output, given);
    if (which.verb == "broadcast") comm::broadcast(world(), input, 0);
    if (which.verb == "all_gather") comm::all_gather(world(), given, output);
    if (which.verb == "all_to_all") comm::all_to_all(world(), given, output);
    if (which.verb == "send" && rank() == 0) comm::send(world(), given, 1);
    if (which.verb == "send" && rank() == 1) comm::recv(world(), input, 0);
  }
};

}  // namespace

int main(int argc, char** argv) {
  init_process_group();
  Ours ours;
  for (const bench::Case& which : bench::cases_of(std::span(argv + 1, argv + argc))) {
    const bench::Counts counts = bench::counts_of(which, ours.size());
    std::vector<float> input(counts.input);
    std::vector<float> output(counts.output);
    bench::time_beside_copies(ours, which, "private", input, output);
    if (counts.input == 0) continue;
    const auto shared = world().allocate_shared(counts.input * sizeof(float));
    bench::time_collective(ours, which, "shared", {static_cast<float*>(shared.get()), counts.input}, output);
  }
}
