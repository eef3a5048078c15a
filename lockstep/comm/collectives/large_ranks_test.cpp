// More elements than a signed 32-bit number counts.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <vector>

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

// Element i is step * i + lift * (i / 65536) + first, modulo 256. So rows of 65536 elements repeat after 256
// of them, and a buffer is filled and compared row by row: element by element it would take most of this
// test's time.
class Pattern {
 public:
  Pattern(std::size_t step, std::size_t lift, std::size_t first) : rows_(ROWS * ROW) {
    for (std::size_t i = 0; i < rows_.size(); ++i)
      rows_[i] = static_cast<std::uint8_t>(step * i + lift * (i / ROW) + first);
  }
  void fill(std::span<std::uint8_t> data) const {
    for (std::size_t at = 0; at < data.size(); at += ROW) std::memcpy(&data[at], row(at), length(data, at));
  }
  std::size_t wrong_rows(std::span<const std::uint8_t> data) const {
    std::size_t wrong = 0;
    for (std::size_t at = 0; at < data.size(); at += ROW)
      wrong += std::memcmp(&data[at], row(at), length(data, at)) != 0 ? 1 : 0;
    return wrong;
  }

 private:
  static constexpr std::size_t ROW = 65536, ROWS = 256;
  const std::uint8_t* row(std::size_t at) const { return &rows_[at % rows_.size()]; }
  static std::size_t length(std::span<const std::uint8_t> data, std::size_t at) {
    return std::min(ROW, data.size() - at);
  }
  std::vector<std::uint8_t> rows_;
};

Pattern of_rank(std::size_t rank) { return {7, 1, rank}; }

// Each rank needs 2 GiB for the buffer. Also 2 GiB for the root's copy or, over tcp, 1 GiB per rank for the
// other rank's slice.
RANKS_TEST(Large, TwoToThe31Elements, Ranks(2), Backends("shm", "tcp")) {
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
  const Pattern mine = of_rank(static_cast<std::size_t>(rank()));
  mine.fill(data);
  comm::all_reduce(world(), data);
  EXPECT_EQ(Pattern(14, 2, 0 + 1).wrong_rows(data), 0U);  // the sum of both ranks' elements
  comm::barrier(world());
  mine.fill(data);
  comm::broadcast(world(), data, 1);
  EXPECT_EQ(of_rank(1).wrong_rows(data), 0U);
  comm::barrier(world());
}

}  // namespace
}  // namespace lockstep
