// Collectives of the stand-in for NCCL: every type and operator, in place and not, more than a channel holds,
// nothing at all.
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/nccl/stand_in_ranks.h"

namespace lockstep::nccl::stand_in {
namespace {

constexpr std::array TYPES{INT8, UINT8, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64, BFLOAT16};
constexpr std::array<std::size_t, 10> BYTES{1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
constexpr std::array OPS{SUM, PROD, MAX, MIN, AVG};
constexpr std::array<std::size_t, 4> COUNTS{1, 2, 7,
                                            100'001};  // the last: several times what a channel holds

bool is_integer(DataType type) { return type <= UINT64; }

// Bits of a float of 16 bits, for numbers that it can hold: frexp's parts are the definition.
std::uint16_t small_float(double number, int fraction_bits, int bias) {
  if (number == 0) return 0;
  int exponent = 0;
  const double fraction = std::frexp(std::abs(number), &exponent) * 2 - 1;
  return static_cast<std::uint16_t>((number < 0 ? 0x8000 : 0) | ((exponent - 1 + bias) << fraction_bits) |
                                    static_cast<int>(std::ldexp(fraction, fraction_bits)));
}

template <class T> void append(std::vector<char>& to, T value) {
  to.resize(to.size() + sizeof(T));
  std::memcpy(to.data() + to.size() - sizeof(T), &value, sizeof(T));
}

// A number as an element of that type.
void append(std::vector<char>& to, DataType type, double number) {
  switch (type) {
    case INT8: return append(to, static_cast<std::int8_t>(number));
    case UINT8: return append(to, static_cast<std::uint8_t>(number));
    case INT32: return append(to, static_cast<std::int32_t>(number));
    case UINT32: return append(to, static_cast<std::uint32_t>(number));
    case INT64: return append(to, static_cast<std::int64_t>(number));
    case UINT64: return append(to, static_cast<std::uint64_t>(number));
    case FLOAT16: return append(to, small_float(number, 10, 15));
    case FLOAT32: return append(to, static_cast<float>(number));
    case FLOAT64: return append(to, number);
    case BFLOAT16: return append(to, small_float(number, 7, 127));
  }
}

template <class Formula>
std::vector<char> elements(DataType type, std::size_t count, const Formula& formula) {
  std::vector<char> bytes;
  for (std::size_t i = 0; i < count; ++i) append(bytes, type, formula(i));
  return bytes;
}

// What rank r contributes at place i, and what all n ranks' contributions come to.
double contribution(std::size_t i, int r) { return static_cast<double>(i % 3) + r + 1; }

double combined(std::size_t i, int n, RedOp op, DataType type) {
  const double first = contribution(i, 0);
  const double sum = n * first + n * (n - 1) / 2.0;
  switch (op) {
    case SUM: return sum;
    case PROD: return std::round(std::tgamma(first + n) / std::tgamma(first));
    case MAX: return first + n - 1;
    case MIN: return first;
    case AVG: break;
  }
  return is_integer(type) ? std::floor(sum / n) : sum / n;
}

class StandInCollectives : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, StandInCollectives, ::testing::Values(1, 2, 3));

TEST_P(StandInCollectives, ReduceInEveryTypeAndOperator) {
  in_ranks(GetParam(), [](Rank& rank) {
    constexpr std::size_t COUNT = 11;
    for (const DataType type : TYPES) {
      for (const RedOp op : OPS) {
        const auto mine = elements(type, COUNT, [&](std::size_t i) { return contribution(i, rank.rank); });
        const auto all =
            elements(type, COUNT, [&](std::size_t i) { return combined(i, rank.size, op, type); });
        auto in_place = mine;
        std::vector<char> apart(mine.size(), 99);
        std::vector<char> at_root(mine.size(), 99);
        const auto& nccl = rank.nccl;
        EXPECT_EQ(nccl.all_reduce(mine.data(), apart.data(), COUNT, type, op, rank.comm, rank.stream()),
                  SUCCESS);
        EXPECT_EQ(
            nccl.all_reduce(in_place.data(), in_place.data(), COUNT, type, op, rank.comm, rank.stream()),
            SUCCESS);
        EXPECT_EQ(nccl.reduce(mine.data(), at_root.data(), COUNT, type, op, 0, rank.comm, rank.stream()),
                  SUCCESS);
        rank.finish();
        EXPECT_EQ(apart, all) << "type " << type << " op " << op;
        EXPECT_EQ(in_place, all) << "type " << type << " op " << op;
        EXPECT_EQ(at_root, rank.rank == 0 ? all : std::vector<char>(mine.size(), 99))
            << "type " << type << " op " << op;
      }
    }
  });
}

TEST_P(StandInCollectives, ReduceScatterInEveryTypeAndOperator) {
  in_ranks(GetParam(), [](Rank& rank) {
    constexpr std::size_t COUNT = 5;
    const auto size = static_cast<std::size_t>(rank.size);
    const auto own = static_cast<std::size_t>(rank.rank);
    for (const DataType type : TYPES) {
      for (const RedOp op : OPS) {
        auto mine = elements(type, COUNT * size, [&](std::size_t i) { return contribution(i, rank.rank); });
        const auto all = elements(
            type, COUNT, [&](std::size_t i) { return combined(own * COUNT + i, rank.size, op, type); });
        std::vector<char> apart(all.size());
        char* const place = mine.data() + own * all.size();
        const auto& nccl = rank.nccl;
        EXPECT_EQ(nccl.reduce_scatter(mine.data(), apart.data(), COUNT, type, op, rank.comm, rank.stream()),
                  SUCCESS);
        EXPECT_EQ(nccl.reduce_scatter(mine.data(), place, COUNT, type, op, rank.comm, rank.stream()),
                  SUCCESS);
        rank.finish();
        EXPECT_EQ(apart, all) << "type " << type << " op " << op;
        EXPECT_EQ(std::vector<char>(place, place + all.size()), all) << "type " << type << " op " << op;
      }
    }
  });
}

TEST_P(StandInCollectives, CopiesOfEveryType) {
  in_ranks(GetParam(), [](Rank& rank) {
    for (std::size_t t = 0; t < TYPES.size(); ++t) {
      for (int root = 0; root < rank.size; ++root) {
        auto in_place = elements(TYPES[t], 11, [&](std::size_t i) { return contribution(i, rank.rank); });
        std::vector<char> apart(in_place.size());
        const void* const input =
            rank.rank == root ? in_place.data() : nullptr;  // elsewhere nobody looks at it
        const auto& nccl = rank.nccl;
        EXPECT_EQ(nccl.broadcast(input, apart.data(), 11, TYPES[t], root, rank.comm, rank.stream()), SUCCESS);
        EXPECT_EQ(
            nccl.broadcast(in_place.data(), in_place.data(), 11, TYPES[t], root, rank.comm, rank.stream()),
            SUCCESS);
        rank.finish();
        const auto of_root = elements(TYPES[t], 11, [&](std::size_t i) { return contribution(i, root); });
        EXPECT_EQ(apart, of_root) << "type " << t << " root " << root;
        EXPECT_EQ(in_place, of_root) << "type " << t << " root " << root;
      }
      const auto mine = elements(TYPES[t], 7, [&](std::size_t i) { return contribution(i, rank.rank); });
      std::vector<char> apart(mine.size() * static_cast<std::size_t>(rank.size));
      auto in_place = apart;
      char* const place = in_place.data() + mine.size() * static_cast<std::size_t>(rank.rank);
      std::memcpy(place, mine.data(), mine.size());
      EXPECT_EQ(mine.size(), 7 * BYTES[t]);
      EXPECT_EQ(rank.nccl.all_gather(mine.data(), apart.data(), 7, TYPES[t], rank.comm, rank.stream()),
                SUCCESS);
      EXPECT_EQ(rank.nccl.all_gather(place, in_place.data(), 7, TYPES[t], rank.comm, rank.stream()), SUCCESS);
      rank.finish();
      const auto all = elements(TYPES[t], 7 * static_cast<std::size_t>(rank.size),
                                [](std::size_t i) { return contribution(i % 7, static_cast<int>(i / 7)); });
      EXPECT_EQ(apart, all) << "type " << t;
      EXPECT_EQ(in_place, all) << "type " << t;
    }
  });
}

// Numbers that float32 holds exactly, up to 2^24.
float number(std::size_t i, int r) { return static_cast<float>(i % 65'536) + static_cast<float>(65'536 * r); }

TEST_P(StandInCollectives, ManyCounts) {
  in_ranks(GetParam(), [](Rank& rank) {
    const auto size = static_cast<std::size_t>(rank.size);
    const auto& nccl = rank.nccl;
    for (const std::size_t count : COUNTS) {
      const int root = rank.size - 1;
      std::vector<float> mine(count * size), summed(count), gathered(count * size), told(count),
          at_root(count), part(count);
      for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = number(i, rank.rank);
      told = std::vector<float>(mine.begin(), mine.begin() + static_cast<std::ptrdiff_t>(count));
      EXPECT_EQ(nccl.all_reduce(mine.data(), summed.data(), count, FLOAT32, SUM, rank.comm, rank.stream()),
                SUCCESS);
      EXPECT_EQ(nccl.all_gather(mine.data(), gathered.data(), count, FLOAT32, rank.comm, rank.stream()),
                SUCCESS);
      EXPECT_EQ(nccl.broadcast(told.data(), told.data(), count, FLOAT32, root, rank.comm, rank.stream()),
                SUCCESS);
      EXPECT_EQ(nccl.reduce(mine.data(), at_root.data(), count, FLOAT32, SUM, root, rank.comm, rank.stream()),
                SUCCESS);
      EXPECT_EQ(nccl.reduce_scatter(mine.data(), part.data(), count, FLOAT32, SUM, rank.comm, rank.stream()),
                SUCCESS);
      rank.finish();
      const auto sum = [&](std::size_t i) {
        return static_cast<float>(rank.size) * number(i, 0) +
               static_cast<float>(32'768 * rank.size * (rank.size - 1));
      };
      int wrong = 0;
      for (std::size_t i = 0; i < count; ++i) {
        wrong += summed[i] != sum(i);
        wrong += told[i] != number(i, root);
        wrong += at_root[i] != (rank.rank == root ? sum(i) : 0.0F);
        wrong += part[i] != sum(static_cast<std::size_t>(rank.rank) * count + i);
        for (std::size_t r = 0; r < size; ++r)
          wrong += gathered[r * count + i] != number(i, static_cast<int>(r));
      }
      EXPECT_EQ(wrong, 0) << count << " elements";
    }
  });
}

template <class T> T all_reduced(Rank& rank, T mine, DataType type, RedOp op) {
  EXPECT_EQ(rank.nccl.all_reduce(&mine, &mine, 1, type, op, rank.comm, rank.stream()), SUCCESS);
  rank.finish();
  return mine;
}

TEST(StandInSums, HalvesAreRoundedOnceToEven) {
  in_ranks(3, [](Rank& rank) {
    const auto half = [&](const std::array<double, 3>& of) {
      return all_reduced(rank, small_float(of[static_cast<std::size_t>(rank.rank)], 10, 15), FLOAT16, SUM);
    };
    EXPECT_EQ(half({2048, 1, 1}), small_float(2050, 10, 15));  // each step rounded: 2048
    EXPECT_EQ(half({2048, 1, 0}), small_float(2048, 10, 15));
    EXPECT_EQ(half({2050, 1, 0}), small_float(2052, 10, 15));
    EXPECT_EQ(half({65'504, 15, 0}), small_float(65'504, 10, 15));
    EXPECT_EQ(half({65'504, 16, 0}), 0x7c00);  // infinity
    EXPECT_EQ(half({-65'504, -16, 0}), 0xfc00);
    const auto tiny = [&](std::uint16_t mine) { return all_reduced(rank, mine, FLOAT16, SUM); };
    EXPECT_EQ(tiny(1), 3);          // three times 2^-24
    EXPECT_EQ(tiny(0x3ff), 0x9fe);  // 3069 * 2^-24 lies between 1534 and 1535 steps of 2^-23
    const auto brain = [&](const std::array<double, 3>& of) {
      return all_reduced(rank, small_float(of[static_cast<std::size_t>(rank.rank)], 7, 127), BFLOAT16, SUM);
    };
    EXPECT_EQ(brain({256, 1, 1}), small_float(258, 7, 127));  // each step rounded: 256
    EXPECT_EQ(brain({256, 1, 0}), small_float(256, 7, 127));
    EXPECT_EQ(brain({258, 1, 0}), small_float(260, 7, 127));
  });
}

TEST(StandInSums, IntegersWrapAndQuotientsGoTowardsZero) {
  in_ranks(2, [](Rank& rank) {
    EXPECT_EQ(all_reduced(rank, std::int8_t{100}, INT8, SUM), -56);
    EXPECT_EQ(all_reduced(rank, std::int8_t{100}, INT8, AVG), -28);
    EXPECT_EQ(all_reduced(rank, std::uint32_t{3'000'000'000}, UINT32, SUM), 1'705'032'704U);
    EXPECT_EQ(all_reduced(rank, std::int32_t{-1 - rank.rank}, INT32, AVG), -1);
    EXPECT_EQ(all_reduced(rank, std::int64_t{rank.rank - 1}, INT64, MAX), 0);
    EXPECT_EQ(all_reduced(rank, std::int64_t{rank.rank - 1}, INT64, MIN), -1);
    EXPECT_EQ(all_reduced(rank, static_cast<std::uint64_t>(rank.rank - 1), UINT64, MAX), ~std::uint64_t{0});
    for (const int r : {0, 1}) {
      EXPECT_EQ(all_reduced(rank, rank.rank == r ? NAN : 2.0F, FLOAT32, MAX), 2.0F);
      EXPECT_EQ(all_reduced(rank, rank.rank == r ? NAN : 2.0, FLOAT64, MIN), 2.0);
    }
  });
}

TEST(StandInCollectivesAlone, NothingToReduceIsNothing) {
  in_ranks(2, [](Rank& rank) {
    if (rank.rank == 0) {  // the other one does not call
      EXPECT_EQ(rank.nccl.all_reduce(nullptr, nullptr, 0, FLOAT32, SUM, rank.comm, rank.stream()), SUCCESS);
      EXPECT_EQ(rank.nccl.all_gather(nullptr, nullptr, 0, FLOAT32, rank.comm, rank.stream()), SUCCESS);
    }
    rank.finish();
    EXPECT_EQ(all_reduced(rank, rank.rank + 1, INT32, SUM), 3);
  });
}

}  // namespace
}  // namespace lockstep::nccl::stand_in
