// Every rank says who it is, then all add up one number.
//
//   build/lockstep run -n 4 build/examples/hello_ranks
//   [0] rank 0 of 4 (shm): the sum of 1 + 2 + ... + 4 is 10
//   [1] rank 1 of 4 (shm): the sum of 1 + 2 + ... + 4 is 10
//
// Started without the launcher it is a job of one process, and prints 1.
#include <ATen/ATen.h>

#include <cstdio>

#include "lockstep/tensor/collectives.h"

namespace dist = lockstep;

int main() {
  dist::init_process_group();
  const int rank = dist::get_rank();
  const int world_size = dist::get_world_size();

  at::Tensor x = at::ones({2, 2}) * (rank + 1);
  dist::all_reduce(x);

  const double sum = x[0][0].item<double>();
  std::printf("rank %d of %d (%s): the sum of 1 + 2 + ... + %d is %g\n", rank, world_size,
              dist::get_backend().c_str(), world_size, sum);
  const double expected = world_size * (world_size + 1) / 2.0;
  dist::destroy_process_group();
  return sum == expected ? 0 : 1;
}
