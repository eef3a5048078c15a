// Leaves a job in the ways a program can leave, with work pending on both ranks.
// tests/end_to_end/leaving_test.py starts it.
//
//   lockstep run -n 2 build/tests/leaving exit
//
// Rank 1 starts an all_reduce of a tensor and leaves without waiting. Rank 0 gets the sum, since rank 1 had
// taken part, and then an error that says how rank 1 went; it prints both.
#include <ATen/ATen.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/tensor/collectives.h"

namespace dist = lockstep;

int leave(const std::string& how) {
  if (how == "exit") std::exit(0);
  if (how == "quick_exit") std::quick_exit(0);
  if (how == "immediately") std::_Exit(0);
  if (how == "throw") throw std::runtime_error("thrown on purpose");
  if (how == "destroy") dist::destroy_process_group();
  return 0;  // "return" does nothing more
}

int main(int, char** argv) {
  dist::init_process_group();
  const at::Tensor x = at::full({1 << 20}, dist::get_rank() + 1.0F);
  dist::Work work = dist::all_reduce(x, dist::ReduceOp::SUM, dist::world(), /*async_op=*/true);
  if (dist::get_rank() == 1) return leave(argv[1]);
  work.wait();
  std::printf("sum %g\n", x.min().item<double>() + x.max().item<double>());
  try {
    dist::barrier();
  } catch (const dist::PeerLost& lost) {
    std::printf("peer %d: %s\n", lost.peer(), lost.what());
    return 0;
  }
  return 1;
}
