// One rank of a job over several hosts, for hosts_test.py.
//
//   host_rank env STEPS                             rank and world size from the environment
//   host_rank tcp://10.90.0.1:4000 STEPS RANK SIZE
//
// Says what it joined, adds up a vector STEPS times (0: until something fails), and says what went wrong. HOST_RANK_COUNT: its
// elements (1000).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/collectives.h"
#include "lockstep/job/job.h"

namespace {

void step(const lockstep::ProcessGroup& world, int number) {
  static const char* const given = std::getenv("HOST_RANK_COUNT");  // NOLINT(concurrency-mt-unsafe)
  static const std::size_t count = given != nullptr ? std::strtoul(given, nullptr, 10) : 1000;
  std::vector<double> x(count, world.rank() + number);
  lockstep::comm::all_reduce(world, std::span(x));
  const double expected =
      world.size() * (world.size() - 1) / 2.0 + static_cast<double>(world.size()) * number;
  if (static_cast<std::size_t>(std::count(x.begin(), x.end(), expected)) != count) {
    std::printf("wrong sum %g in step %d, expected %g\n", x[0], number, expected);
    std::exit(1);
  }
}

void run(int argc, char** argv) {
  lockstep::InitOptions options;
  if (std::string(argv[1]) != "env") options.init_method = argv[1];
  if (argc == 5) {
    options.rank = std::atoi(argv[3]);
    options.world_size = std::atoi(argv[4]);
  }
  lockstep::init_process_group("auto", options);
  const lockstep::ProcessGroup& world = lockstep::world();
  std::printf("joined as rank %d of %d over %s\n", world.rank(), world.size(),
              lockstep::get_backend().c_str());
  const int steps = std::atoi(argv[2]);
  for (int number = 0; steps == 0 || number < steps; ++number) {
    step(world, number);
    if (number % 100 == 0) std::printf("step %d\n", number);
  }
  lockstep::destroy_process_group();
  std::printf("done\n");
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  if (argc != 3 && argc != 5) return 64;
  try {
    run(argc, argv);
  } catch (const lockstep::PeerLost& lost) {
    std::printf("PeerLost %d: %s\n", lost.peer(), lost.what());
    return 3;
  } catch (const lockstep::Timeout& late) {
    std::printf("Timeout: %s\n", late.what());
    return 3;
  } catch (const lockstep::Error& error) {
    std::printf("Error: %s\n", error.what());
    return 3;
  }
  return 0;
}
