// Counts on all ranks together what a saved model gets right: rank 0 prints the number.
//
//   lockstep run -n 3 mnist_evaluation DATA_FOLDER MODEL.safetensors
#include <cstdio>
#include <exception>

#include "examples/mnist_job.h"

namespace dist = lockstep;

int main(int argc, char** argv) try {
  if (argc != 3) throw std::invalid_argument("usage: mnist_evaluation DATA_FOLDER MODEL.safetensors");
  dist::init_process_group();
  SimpleCNN net;
  dist::load_state_dict(*net, argv[2]);
  const dist::MNIST test(argv[1], dist::Split::TEST);
  const torch::Tensor correct =
      torch::tensor(count_correct(*net, test, dist::get_rank(), dist::get_world_size()));
  dist::all_reduce(correct);
  if (dist::get_rank() == 0)
    std::printf("correct %lld\n", static_cast<long long>(correct.item<std::int64_t>()));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "mnist_evaluation: %s\n", error.what());
  return 1;
}
