// The peer of bench/collectives.cpp over MPI, in the memory of a vector.
//
//   mpirun.openmpi -n 2 --bind-to core build/bench/collectives_openmpi openmpi
#include <string>
#include <vector>

#include "bench/bare_copies.h"
#include "bench/mpi_calls.h"
#include "bench/timed_collectives.h"

int main(int argc, char** argv) {
  bench::Mpi mpi(argc, argv);
  for (const bench::Case& which : bench::cases_of(std::span(argv + std::min(argc, 2), argv + argc))) {
    const bench::Counts counts = bench::counts_of(which, mpi.size());
    std::vector<float> input(counts.input);
    std::vector<float> output(counts.output);
    bench::time_beside_copies(mpi, which, argc > 1 ? argv[1] : "mpi", input, output);
  }
}
