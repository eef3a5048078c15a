// The part without libtorch, from an installed package: a job of one process adds up its vector.
#include <lockstep/comm/collectives/collectives.h>
#include <lockstep/job/job.h>

#include <span>
#include <vector>

int main() {
  lockstep::init_process_group();
  std::vector<float> numbers = {1, 2, 3};
  lockstep::comm::all_reduce(lockstep::world(), std::span(numbers));
  lockstep::destroy_process_group();
  return numbers == std::vector<float>{1, 2, 3} ? 0 : 1;
}
