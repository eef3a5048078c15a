// Cases in which the order of a sum, rounding or a special value shows in the bits.
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "lockstep/comm/collectives/all_reduce.h"
#include "testing/buffers.h"
#include "testing/paths.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using reference::nearest;
using reference::value_of;

template <typename T> T reduced(const ProcessGroup& group, const std::vector<T>& by_rank, ReduceOp op) {
  T value = by_rank[static_cast<std::size_t>(group.rank())];
  comm::all_reduce(group, std::span(&value, 1), op);
  return value;
}

RANKS_TEST(AllReduceOrder, ThreeRanksAddTheThirdLast, Ranks(3), EveryBackend(), Except("nccl")) {
  EXPECT_EQ(reduced<float>(world(), {1e8F, 1, -1e8F}, ReduceOp::SUM), (1e8F + 1) + -1e8F);
  EXPECT_EQ(reduced<float>(world(), {1e8F, -1e8F, 1}, ReduceOp::SUM), 1);
  EXPECT_EQ(reduced<float>(world(), {1, 1e8F, -1e8F}, ReduceOp::SUM), 0);
  EXPECT_EQ(reduced<double>(world(), {1e17, 1, -1e17}, ReduceOp::SUM), 0);
  EXPECT_EQ(reduced<double>(world(), {1e17, -1e17, 1}, ReduceOp::AVG), 1.0 / 3);
}

RANKS_TEST(AllReduceOrder, FourRanksAddInPairs, Ranks(4), EveryBackend(), Except("nccl")) {
  EXPECT_EQ(reduced<float>(world(), {1e8F, -1e8F, 1, 1}, ReduceOp::SUM), 2);
  EXPECT_EQ(reduced<float>(world(), {1, 1, 1e8F, -1e8F}, ReduceOp::SUM), 2);
  EXPECT_EQ(reduced<float>(world(), {1e8F, 1, -1e8F, 1}, ReduceOp::SUM),
            0);  // adding one rank after another would give 1
  EXPECT_EQ(reduced<float>(world(), {1, 1e8F, -1e8F, 1}, ReduceOp::SUM), 0);
  EXPECT_EQ(reduced<double>(world(), {1e17, 1, 1, -1e17}, ReduceOp::SUM), 0);
}

// The order is the same for every element of a large buffer, whichever rank reduces that slice.
RANKS_TEST(AllReduceOrder, EveryElementOfALargeBufferHasTheSameBits, Ranks(3, 4), EveryBackend(),
           Except("nccl")) {
  const std::vector<float> values = {0.1F, 0.7F, 1e8F, -1e8F};
  const float expected = reference::combine<float>(ReduceOp::SUM, {values.begin(), values.begin() + size()});
  std::vector<float> x(300007, values[static_cast<std::size_t>(rank())]);
  comm::all_reduce(world(), std::span(x));
  EXPECT_TRUE(all_are(x, expected));
}

// Rounding after every step would lose each small part; rounding once keeps their sum.
RANKS_TEST(AllReduceRounding, HalvesAccumulateInFloat32AndRoundOnce, Ranks(4), EveryBackend()) {
  const std::vector<double> values = {256, 1, 1, 2};  // bfloat16 has 8 bits, so 256 + 1 would stay 256
  std::vector<BFloat16> brains;
  for (const double value : values) brains.push_back(nearest<BFloat16>(value));
  EXPECT_EQ(value_of(reduced<BFloat16>(world(), brains, ReduceOp::SUM)), 260);
  const std::vector<double> wide = {2048, 1, 1, 2};  // the same for float16 with its 11 bits
  std::vector<Float16> halves;
  for (const double value : wide) halves.push_back(nearest<Float16>(value));
  EXPECT_EQ(value_of(reduced<Float16>(world(), halves, ReduceOp::SUM)), 2052);
  // The sum of these values is 240000, too large for float16; their mean is not.
  EXPECT_EQ(
      value_of(reduced<Float16>(world(), std::vector<Float16>(4, nearest<Float16>(60000)), ReduceOp::AVG)),
      60000);
  EXPECT_EQ(
      value_of(reduced<Float16>(world(), std::vector<Float16>(4, nearest<Float16>(60000)), ReduceOp::SUM)),
      INFINITY);
}

RANKS_TEST(AllReduceRounding, TiesGoToEven, Ranks(2), EveryBackend()) {
  const auto sum = [&]<typename T>(T, double a, double b) {
    return value_of(reduced<T>(world(), {nearest<T>(a), nearest<T>(b)}, ReduceOp::SUM));
  };
  EXPECT_EQ(sum(Float16{}, 2048, 1), 2048);
  EXPECT_EQ(sum(Float16{}, 2048, 3), 2052);
  EXPECT_EQ(sum(Float16{}, 65504, 15), 65504);
  EXPECT_EQ(sum(Float16{}, 65504, 16), INFINITY);
  EXPECT_EQ(sum(BFloat16{}, 256, 1), 256);
  EXPECT_EQ(sum(BFloat16{}, 256, 3), 260);
  EXPECT_EQ(sum(BFloat16{}, -256, -3), -260);
}

// Every 16-bit pattern passes through float32 unchanged: the mean of equal values is that value, unless their
// sum overflows.
template <typename T> void check_every_pattern(const ProcessGroup& group) {
  std::vector<T> x(0x10000);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = {static_cast<std::uint16_t>(i)};
  comm::all_reduce(group, std::span(x), ReduceOp::AVG);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const T given = {static_cast<std::uint16_t>(i)};
    if (std::isfinite(value_of(given)) && std::fabs(value_of(given)) * group.size() >= 0x1p128) continue;
    ASSERT_TRUE(reference::same(x[i], given)) << i << " became " << x[i].bits;
  }
}

RANKS_TEST(AllReduceRounding, MeanOfEqualHalvesIsThatHalf, Ranks(1, 2, 4), EveryBackend()) {
  check_every_pattern<Float16>(world());
  check_every_pattern<BFloat16>(world());
}

RANKS_TEST(AllReduceNan, MinAndMaxHaveOneIfAnyRankHasOne, Ranks(1, 2, 3, 4), EveryBackend(), Except("nccl")) {
  for (int owner = 0; owner < size(); ++owner) {
    for (const ReduceOp op : {ReduceOp::MIN, ReduceOp::MAX}) {
      double wide = rank() == owner ? NAN : rank();
      float narrow = rank() == owner ? -NAN : static_cast<float>(rank());
      Float16 half = nearest<Float16>(narrow);
      BFloat16 brain = nearest<BFloat16>(narrow);
      comm::all_reduce(world(), std::span(&wide, 1), op);
      comm::all_reduce(world(), std::span(&narrow, 1), op);
      comm::all_reduce(world(), std::span(&half, 1), op);
      comm::all_reduce(world(), std::span(&brain, 1), op);
      EXPECT_TRUE(std::isnan(wide) && std::isnan(narrow)) << wide << " " << narrow;
      EXPECT_TRUE(std::isnan(value_of(half)) && std::isnan(value_of(brain))) << owner;
    }
  }
}

// ---- the same inputs in real torch; tests/peer/reduce_corners.txt has its results
struct Recorded {
  std::string dtype, op, answer;
  std::vector<std::string> by_rank[2];
};

std::vector<std::string> split(const std::string& text) {
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

std::vector<Recorded> read_record() {
  std::ifstream file(testing::source_folder() + "/tests/peer/reduce_corners.txt");
  std::vector<Recorded> record;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    std::vector<std::string> fields;
    for (std::size_t at = 0; at != std::string::npos;) {
      const std::size_t bar = line.find(" | ", at);
      fields.push_back(line.substr(at, bar == std::string::npos ? bar : bar - at));
      at = bar == std::string::npos ? bar : bar + 3;
    }
    const auto head = split(fields.at(0));
    record.push_back({head.at(0), head.at(1), fields.at(3), {split(fields.at(1)), split(fields.at(2))}});
  }
  return record;
}

// A value in Python's text form, and back.
template <typename T> T parse(const std::string& text) {
  if constexpr (std::is_same_v<T, bool>) {
    return text == "True";
  } else if constexpr (std::integral<T>) {
    return text.starts_with("-") ? static_cast<T>(std::stoll(text)) : static_cast<T>(std::stoull(text));
  } else if constexpr (reference::IS_COMPLEX<T>) {  // "(1.5-2j)"
    std::size_t used = 0;
    const double re = std::stod(text.substr(1), &used);
    return T(static_cast<typename T::value_type>(re),
             static_cast<typename T::value_type>(std::stod(text.substr(1 + used))));
  } else if constexpr (reference::IS_HALF<T>) {
    return nearest<T>(std::stod(text));
  } else {
    return static_cast<T>(std::stod(text));
  }
}

template <typename T> bool equal_values(const T& a, const T& b) {
  if constexpr (reference::IS_HALF<T>) {
    return value_of(a) == value_of(b) || reference::same(a, b);
  } else {
    return a == b || reference::same(a, b);
  }
}

// Cases in which Lockstep intentionally differs from torch with Gloo.
std::string known_difference(const Recorded& row, std::size_t element) {
  const bool nan = row.by_rank[0][element] == "nan" || row.by_rank[1][element] == "nan";
  if ((row.op == "MIN" || row.op == "MAX") && nan)
    return "Gloo keeps or drops a NaN depending on the rank that has it";
  if (row.dtype.ends_with("float16") && row.op == "AVG" && element == 4)
    return "Gloo adds in 16 bits and overflows";
  return "";
}

template <typename T> void compare_with_record(const ProcessGroup& group, const Recorded& row, ReduceOp op) {
  SCOPED_TRACE(row.dtype + " " + row.op);
  if (row.answer.starts_with("refused: Invalid scalar type")) return;  // Gloo does not support these integers
  ASSERT_EQ(row.answer.starts_with("refused"), reference::is_refused<T>(op));
  if (reference::is_refused<T>(op)) return;
  const auto answers = split(row.answer);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (!known_difference(row, i).empty()) continue;
    T value = parse<T>(row.by_rank[group.rank()][i]);
    comm::all_reduce(group, std::span(&value, 1), op);
    EXPECT_TRUE(equal_values(value, parse<T>(answers[i]))) << "element " << i << ", torch has " << answers[i];
  }
}

RANKS_TEST(AllReduceCorners, AnswersAreThoseOfTorch, Ranks(2), BackendsWithPeers()) {
  const auto record = read_record();
  ASSERT_EQ(record.size(), static_cast<std::size_t>(DTYPE_COUNT * REDUCE_OP_COUNT));
  reference::for_each_dtype([&]<typename T>() {
    for (const Recorded& row : record) {
      if (row.dtype != name_of(dtype_of<T>())) continue;
      for (const ReduceOp op : reference::OPS) {
        std::string name(name_of(op));
        std::transform(name.begin(), name.end(), name.begin(), [](char c) { return std::toupper(c); });
        if (name == row.op) compare_with_record<T>(world(), row, op);
      }
    }
  });
}

}  // namespace
}  // namespace lockstep
