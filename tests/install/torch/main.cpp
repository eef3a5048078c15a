// The whole library, from an installed package.
#include <ATen/ATen.h>
#include <lockstep/base/environment.h>

int main() {
  const auto ones = at::ones({4});
  return ones.sum().item<float>() == 4 && lockstep::job_environment().world_size == 1 ? 0 : 1;
}
