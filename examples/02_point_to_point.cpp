// Rank 0 sends a tensor to rank 1, first blocking, then not; both ranks end with 1.
//
//   build/lockstep run -n 2 build/examples/point_to_point
//   [0] blocking: rank 0 has data 1
//   [1] blocking: rank 1 has data 1
//   [0] rank 0 started sending
//   [1] rank 1 started receiving
//   [0] non-blocking: rank 0 has data 1
//   [1] non-blocking: rank 1 has data 1
//
//   build/examples/point_to_point --spawn 2                 # the same without the launcher
#include <ATen/ATen.h>

#include <cstdio>

#include "examples/job.h"
#include "lockstep/tensor/collectives.h"

namespace dist = lockstep;

// send and recv return when the tensor may be used again.
double blocking() {
  at::Tensor tensor = at::zeros({1});
  if (dist::get_rank() == 0) {
    tensor += 1;
    dist::send(tensor, /*dst=*/1);
  } else if (dist::get_rank() == 1) {
    dist::recv(tensor, /*src=*/0);
  }
  return tensor.item<double>();
}

// isend and irecv return at once; between them and wait() the tensor must not be touched.
double non_blocking() {
  at::Tensor tensor = at::zeros({1});
  dist::Work work;
  if (dist::get_rank() == 0) {
    tensor += 1;
    work = dist::isend(tensor, /*dst=*/1);
    std::printf("rank 0 started sending\n");
  } else if (dist::get_rank() == 1) {
    work = dist::irecv(tensor, /*src=*/0);
    std::printf("rank 1 started receiving\n");
  }
  work.wait();
  return tensor.item<double>();
}

void run() {
  dist::init_process_group();
  if (dist::get_world_size() < 2) {
    std::printf("start this with two processes: lockstep run -n 2 build/examples/point_to_point\n");
    return;
  }
  const int rank = dist::get_rank();
  const double first = blocking();
  if (rank < 2) std::printf("blocking: rank %d has data %g\n", rank, first);
  const double second = non_blocking();
  if (rank < 2) std::printf("non-blocking: rank %d has data %g\n", rank, second);
}

int main(int argc, char** argv) { return run_job(argc, argv, run); }
