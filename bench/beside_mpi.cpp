// Times of Lockstep's collectives beside those of the MPI library that this program is linked with, in one
// job: both work in the same memory, in turn. Large copies take as long as a process's pages are good for,
// and those of two programs differ by a third, so that two programs cannot be told apart by less.
//
//   mpirun.openmpi -n 2 --bind-to core build/bench/beside_openmpi openmpi                            # all
//   mpirun.openmpi -n 2 --bind-to core build/bench/beside_openmpi openmpi all_gather 26214400        # some
//
// Prints as bench/collectives does. `memory` is private: "lockstep beside openmpi" and "openmpi beside
// lockstep".
#include <string>
#include <vector>

#include "bench/mpi_calls.h"
#include "bench/our_calls.h"
#include "lockstep/job/job.h"

namespace {

using namespace lockstep;  // NOLINT(google-build-using-namespace)

void time_both(const bench::Case& which, const bench::Ours& ours, const bench::Mpi& mpi,
               const std::string& name) {
  const bench::Counts counts = bench::counts_of(which, ours.size());
  std::vector<float> in(counts.input);
  std::vector<float> out(counts.output);
  bench::Moments of_ours;
  bench::Moments of_mpi;
  const auto call_ours = [&] { bench::time_call(ours, in, of_ours, [&] { ours.call(which, in, out); }); };
  const auto call_mpi = [&] { bench::time_call(ours, in, of_mpi, [&] { mpi.call(which, in, out); }); };
  const auto check = [&] {
    bench::require_right(which, bench::is_right(which, ours.rank(), ours.size(), in, out));
    std::fill(out.begin(), out.end(), 0.0F);
  };
  for (std::size_t round = 0; round < bench::rounds_of(which); ++round) {
    round % 2 == 0 ? call_ours() : call_mpi();
    check();
    round % 2 == 0 ? call_mpi() : call_ours();
    check();
  }
  bench::report(ours, which, "lockstep beside " + name, std::move(of_ours));
  bench::report(ours, which, name + " beside lockstep", std::move(of_mpi));
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Mpi mpi(argc, argv);
  init_process_group("shm");
  const bench::Ours ours;
  for (const bench::Case& which : bench::cases_of(std::span(argv + std::min(argc, 2), argv + argc)))
    time_both(which, ours, mpi, argc > 1 ? argv[1] : "mpi");
  destroy_process_group();
}
