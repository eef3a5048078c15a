// The peer of bench/collectives.cpp over MPI: in place where MPI can, in the memory of a vector.
//
//   mpirun.openmpi -n 2 --bind-to core build/bench/collectives_openmpi openmpi
#include <mpi.h>

#include <string>

#include "bench/bare_copies.h"
#include "bench/timed_collectives.h"

namespace {

struct Mpi {
  int rank_ = 0;
  int size_ = 0;

  int rank() const { return rank_; }
  int size() const { return size_; }
  void barrier() const { MPI_Barrier(MPI_COMM_WORLD); }
  void maxima(std::vector<double>& values) const {
    MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_DOUBLE, MPI_MAX,
                  MPI_COMM_WORLD);
  }

  void call(const bench::Case& which, std::span<float> input, std::span<float> output) const {
    const auto ins = static_cast<int>(input.size());
    const auto outs = static_cast<int>(output.size());
    if (which.verb == "barrier") barrier();
    if (which.verb == "all_reduce")
      MPI_Allreduce(MPI_IN_PLACE, input.data(), ins, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (which.verb == "reduce_scatter")
      MPI_Reduce_scatter_block(input.data(), output.data(), outs, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (which.verb == "broadcast") MPI_Bcast(input.data(), ins, MPI_FLOAT, 0, MPI_COMM_WORLD);
    if (which.verb == "all_gather")
      MPI_Allgather(input.data(), ins, MPI_FLOAT, output.data(), ins, MPI_FLOAT, MPI_COMM_WORLD);
    if (which.verb == "all_to_all")
      MPI_Alltoall(input.data(), ins / size_, MPI_FLOAT, output.data(), ins / size_, MPI_FLOAT,
                   MPI_COMM_WORLD);
    if (which.verb == "send" && rank_ == 0) MPI_Send(input.data(), ins, MPI_FLOAT, 1, 0, MPI_COMM_WORLD);
    if (which.verb == "send" && rank_ == 1)
      MPI_Recv(input.data(), ins, MPI_FLOAT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  Mpi mpi;
  MPI_Comm_rank(MPI_COMM_WORLD, &mpi.rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &mpi.size_);
  for (const bench::Case& which : bench::cases_of(std::span(argv + std::min(argc, 2), argv + argc))) {
    const bench::Counts counts = bench::counts_of(which, mpi.size());
    std::vector<float> input(counts.input);
    std::vector<float> output(counts.output);
    bench::time_beside_copies(mpi, which, argc > 1 ? argv[1] : "mpi", input, output);
  }
  MPI_Finalize();
}
