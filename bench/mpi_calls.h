// An MPI library as timed_collectives.h takes it: in place where MPI can.
#pragma once

#include <mpi.h>

#include <span>
#include <vector>

#include "bench/timed_collectives.h"

namespace bench {

class Mpi {
 public:
  Mpi(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  Mpi(const Mpi&) = delete;
  Mpi& operator=(const Mpi&) = delete;
  ~Mpi() { MPI_Finalize(); }

  int rank() const { return rank_; }
  int size() const { return size_; }
  void barrier() const { MPI_Barrier(MPI_COMM_WORLD); }
  void maxima(std::vector<double>& values) const {
    MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_DOUBLE, MPI_MAX,
                  MPI_COMM_WORLD);
  }

  void call(const Case& which, std::span<float> input, std::span<float> output) const {
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

 private:
  int rank_ = 0;
  int size_ = 0;
};

}  // namespace bench
