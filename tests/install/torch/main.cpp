// The whole library, from an installed package: a job of one process adds up its tensor.
#include <ATen/ATen.h>
#include <lockstep/tensor/collectives.h>

int main() {
  lockstep::init_process_group();
  const auto ones = at::ones({4});
  lockstep::all_reduce(ones);
  lockstep::destroy_process_group();
  return ones.sum().item<float>() == 4 ? 0 : 1;
}
