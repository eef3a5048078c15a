// Every rank adds its tensor to the others', then all get one from rank 0.
//
//   build/lockstep run -n 4 build/examples/basic_operations
//   [0] rank 0: original 1, after all_reduce 10, after broadcast 100 200
//   [1] rank 1: original 2, after all_reduce 10, after broadcast 100 200
//   [2] rank 2: original 3, after all_reduce 10, after broadcast 100 200
//   [3] rank 3: original 4, after all_reduce 10, after broadcast 100 200
//
//   build/examples/basic_operations --spawn 4               # the same without the launcher
#include <ATen/ATen.h>

#include <cstdio>

#include "examples/job.h"
#include "lockstep/tensor/collectives.h"

namespace dist = lockstep;

void run() {
  dist::init_process_group();
  const int rank = dist::get_rank();

  const at::Tensor tensor = at::ones({2, 2}) * (rank + 1);
  const double original = tensor[0][0].item<double>();
  dist::all_reduce(tensor, dist::ReduceOp::SUM);
  const double sum = tensor[1][1].item<double>();

  const at::Tensor values = rank == 0 ? at::tensor({100.0, 200.0}) : at::zeros({2}, at::kDouble);
  dist::broadcast(values, /*src=*/0);

  std::printf("rank %d: original %g, after all_reduce %g, after broadcast %g %g\n", rank, original, sum,
              values[0].item<double>(), values[1].item<double>());
  dist::destroy_process_group();
}

int main(int argc, char** argv) { return run_job(argc, argv, run); }
