// More elements than a signed 32-bit number counts.
#include <cstdint>
#include <cstdio>
#include <fstream>

#include "lockstep/comm/collectives/collectives.h"
#include "testing/ranks.h"
#include "testing/reference.h"

namespace lockstep {
namespace {

constexpr std::size_t LARGE_COUNT = (std::size_t{1} << 31U) + 1;

std::size_t available_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string name; file >> name;) {
    std::size_t kib = 0;
    if (name == "MemAvailable:" && file >> kib) return kib * 1024;
  }
  return 0;
}

std::uint8_t sample(std::size_t index, std::size_t rank) {
  return static_cast<std::uint8_t>(index * 7 + (index >> 16U) + rank);
}

template <typename Expected>
std::size_t wrong_elements(std::span<const std::uint8_t> data, Expected expected) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < data.size(); ++i) wrong += data[i] != expected(i) ? 1 : 0;
  return wrong;
}

// Each rank needs 2 GiB for the buffer. Also 2 GiB for the root's copy or, over tcp, 1 GiB per rank for the
// other rank's slice.
RANKS_TEST(Large, TwoToThe31Elements, Ranks(2), Backends("shm", "tcp"), Within(std::chrono::seconds(300))) {
  if (!reference::THOROUGH) {
    std::fprintf(stderr, "not run: takes hours under ThreadSanitizer\n");
    return;
  }
  int enough = available_memory() > 4 * LARGE_COUNT ? 1 : 0;
  comm::all_reduce(world(), std::span(&enough, 1), ReduceOp::MIN);
  if (enough == 0) {
    std::fprintf(stderr, "not run: needs %zu bytes of memory, %zu are available\n", 4 * LARGE_COUNT,
                 available_memory());
    return;
  }
  const auto memory = world().allocate_shared(LARGE_COUNT);
  const std::span<std::uint8_t> data(static_cast<std::uint8_t*>(memory.get()), LARGE_COUNT);
  const auto me = static_cast<std::size_t>(rank());
  for (std::size_t i = 0; i < LARGE_COUNT; ++i) data[i] = sample(i, me);
  comm::all_reduce(world(), data);
  EXPECT_EQ(wrong_elements(
                data, [](std::size_t i) { return static_cast<std::uint8_t>(sample(i, 0) + sample(i, 1)); }),
            0U);
  comm::barrier(world());
  for (std::size_t i = 0; i < LARGE_COUNT; ++i) data[i] = sample(i, me);
  comm::broadcast(world(), data, 1);
  EXPECT_EQ(wrong_elements(data, [](std::size_t i) { return sample(i, 1); }), 0U);
  comm::barrier(world());
}

}  // namespace
}  // namespace lockstep
