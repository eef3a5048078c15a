// One rank of a job over several hosts, for hosts_test.py.
//
//   host_rank env STEPS                             rank and world size from the environment
//   host_rank tcp://10.90.0.1:4000 STEPS RANK SIZE
//
// Says what it joined, adds up a vector STEPS times (0: until something fails), and says what went wrong.
// HOST_RANK_COUNT: its elements (1000). HOST_RANK_DTYPE: bfloat16 (float64). HOST_RANK_NEIGHBOURS: instead,
// ranks 0 and 1, 2 and 3, ... send each other such a vector STEPS times.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/collectives/collectives.h"
#include "lockstep/job/job.h"

namespace {

using lockstep::BFloat16;

std::string given(const char* variable, const char* otherwise) {
  const char* const value = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe)
  return value != nullptr ? value : otherwise;
}

// Of whole numbers up to 256, which bfloat16 has.
template <typename T> T number_as(int number) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return {static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(number)) >> 16U)};
  } else {
    return number;
  }
}

double value_of(double number) { return number; }
double value_of(BFloat16 number) { return std::bit_cast<float>(std::uint32_t{number.bits} << 16U); }

template <typename T> void step(const lockstep::ProcessGroup& world, int number) {
  static const std::size_t count = std::stoul(given("HOST_RANK_COUNT", "1000"));
  const int size = world.size();
  const int base = std::is_same_v<T, BFloat16> ? number % 8 : number;
  std::vector<T> x(count, number_as<T>(world.rank() + base));
  lockstep::comm::all_reduce(world, std::span(x));
  const T expected = number_as<T>(size * (size - 1) / 2 + size * base);
  if (!std::all_of(x.begin(), x.end(), [&](T y) { return std::memcmp(&y, &expected, sizeof(T)) == 0; })) {
    std::printf("wrong sum %g in step %d, expected %g\n", value_of(x[0]), number, value_of(expected));
    std::exit(1);
  }
}

// What comes is what the other one sent in this step.
void exchange_with_neighbour(const lockstep::ProcessGroup& world, int number) {
  const std::size_t count = std::stoul(given("HOST_RANK_COUNT", "1000"));
  const int other = world.rank() ^ 1;
  const std::vector<double> mine(count, world.rank() + number);
  std::vector<double> theirs(count);
  lockstep::Work receiving = lockstep::comm::irecv(world, std::span(theirs), other);
  lockstep::comm::send(world, std::span(mine), other);
  receiving.wait();
  if (!std::all_of(theirs.begin(), theirs.end(), [&](double x) { return x == other + number; })) {
    std::printf("wrong message in step %d\n", number);
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
  const bool is_half = given("HOST_RANK_DTYPE", "float64") == "bfloat16";
  const bool with_neighbours = !given("HOST_RANK_NEIGHBOURS", "").empty();
  for (int number = 0; steps == 0 || number < steps; ++number) {
    if (with_neighbours) {
      exchange_with_neighbour(world, number);
    } else {
      is_half ? step<BFloat16>(world, number) : step<double>(world, number);
    }
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
