// Operations by name on one to four ranks: every kind against its formula, any order of submissions, joins,
// groups, process sets, and that bits do not depend on the packing.
#include "lockstep/named/engine.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <thread>

#include "lockstep/base/error.h"
#include "testing/named_calls.h"
#include "testing/ranks.h"
#include "testing/temp_folder.h"

namespace lockstep::named {
namespace engine_ranks_test {
namespace {

using harness::named_request;
using harness::NamedSum;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Settings quick() {
  Settings settings;
  settings.cycle_time = std::chrono::microseconds(300);
  return settings;
}

std::vector<float> floats_of(const OperationResult& result) {
  const std::size_t count = static_cast<std::size_t>(
      std::accumulate(result.shape.begin(), result.shape.end(), std::int64_t{1}, std::multiplies<>()));
  std::vector<float> values(count);
  if (count > 0) std::memcpy(values.data(), result.memory.get(), count * sizeof(float));
  return values;
}

// Every rank sums r + 1 over r: n (n + 1) / 2.
void check_reductions(Engine& engine, int rank, int size) {
  const float value = static_cast<float>(rank + 1), n = static_cast<float>(size);
  NamedSum sum(engine, "sum", {value, -value}), average(engine, "average", {value}, Op::AVERAGE);
  NamedSum least(engine, "min", {value}, Op::MIN), most(engine, "max", {value}, Op::MAX);
  NamedSum product(engine, "product", {2}, Op::PRODUCT);
  EXPECT_THAT(product.wait(), ElementsAre(static_cast<float>(1 << size)));
  EXPECT_THAT(most.wait(), ElementsAre(n));
  EXPECT_THAT(least.wait(), ElementsAre(1));
  EXPECT_THAT(average.wait(), ElementsAre((n + 1) / 2));
  EXPECT_THAT(sum.wait(), ElementsAre(n * (n + 1) / 2, -n * (n + 1) / 2));

  std::vector<std::int32_t> input = {rank, 2 * rank + 3}, output(2);
  auto request = named_request(Kind::ALLREDUCE, "integers", {2}, DType::INT32);
  engine.submit({.request = request, .input = input.data(), .output = output.data()})->wait();
  EXPECT_THAT(output, ElementsAre(size * (size - 1) / 2 / size, (size * (size - 1) + 3 * size) / size));
  EXPECT_THAT(input, ElementsAre(rank, 2 * rank + 3));
  request.name = "factors";
  request.op = Op::SUM;
  request.prescale = 3;
  request.postscale = 0.5;
  engine.submit({.request = request, .input = input.data(), .output = output.data()})->wait();
  EXPECT_EQ(output[0], 3 * size * (size - 1) / 2 / 2);
}

// Rank r gives r + 1 rows of two numbers, all r.
void check_gather_and_broadcast(Engine& engine, int rank, int size) {
  std::vector<float> rows(2 * static_cast<std::size_t>(rank + 1), static_cast<float>(rank)), all;
  for (int r = 0; r < size; ++r)
    all.insert(all.end(), 2 * static_cast<std::size_t>(r + 1), static_cast<float>(r));
  const auto gathered =
      engine.submit({.request = named_request(Kind::ALLGATHER, "rows", {rank + 1, 2}), .input = rows.data()});
  gathered->wait();
  EXPECT_THAT(gathered->result().shape, ElementsAre(size * (size + 1) / 2, 2));
  EXPECT_EQ(floats_of(gathered->result()), all);

  std::vector<float> mine(5, static_cast<float>(rank)), given(5);
  auto request = named_request(Kind::BROADCAST, "values", {5});
  request.root = size - 1;
  engine.submit({.request = request, .input = mine.data(), .output = given.data()})->wait();
  EXPECT_THAT(given, Each(size - 1));
  EXPECT_THAT(mine, Each(rank));
}

// Rank r sends q rows of r to rank q. Of reducescatter, 2 n + 1 rows come to n ranks: 3 to rank 0.
void check_alltoall_and_reducescatter(Engine& engine, int rank, int size) {
  const std::int64_t sent = size * (size - 1) / 2;
  std::vector<float> rows(static_cast<std::size_t>(sent), static_cast<float>(rank)), expected;
  auto request = named_request(Kind::ALLTOALL, "exchange", {sent});
  for (int q = 0; q < size; ++q) request.splits.push_back(q);
  const auto exchanged = engine.submit({.request = request, .input = rows.data()});
  exchanged->wait();
  for (int r = 0; r < size; ++r)
    expected.insert(expected.end(), static_cast<std::size_t>(rank), static_cast<float>(r));
  EXPECT_EQ(floats_of(exchanged->result()), expected);
  EXPECT_THAT(exchanged->result().received_splits, Each(rank));

  std::vector<float> numbers(static_cast<std::size_t>(2 * size + 1));
  std::iota(numbers.begin(), numbers.end(), 0.0F);
  auto scatter = named_request(Kind::REDUCESCATTER, "parts", {2 * size + 1});
  scatter.op = Op::SUM;
  const auto part = engine.submit({.request = scatter, .input = numbers.data()});
  part->wait();
  const int first = rank == 0 ? 0 : 2 * rank + 1;
  expected.clear();
  for (int i = 0; i < (rank == 0 ? 3 : 2); ++i) expected.push_back(static_cast<float>((first + i) * size));
  EXPECT_EQ(floats_of(part->result()), expected);
}

RANKS_TEST(NamedEngine, EveryKindIsItsFormula, Ranks(1, 2, 3, 4), EveryBackend(), Except("nccl")) {
  Engine engine(world(), quick());
  for (int round = 0; round < 3; ++round) {
    check_reductions(engine, rank(), size());
    check_gather_and_broadcast(engine, rank(), size());
    check_alltoall_and_reducescatter(engine, rank(), size());
    engine.submit({.request = {.kind = Kind::BARRIER, .name = "end"}})->wait();
  }
}

RANKS_TEST(NamedEngine, AdasumIsItsFormula, Ranks(1, 2, 4)) {
  Engine engine(world(), quick());
  // Each rank has its own axis, so vectors are orthogonal and add up. Equal ones are averaged.
  std::vector<float> axis(static_cast<std::size_t>(size()));
  axis[static_cast<std::size_t>(rank())] = static_cast<float>(rank() + 1);
  NamedSum orthogonal(engine, "orthogonal", axis, Op::ADASUM), equal(engine, "equal", {3, 4}, Op::ADASUM);
  std::iota(axis.begin(), axis.end(), 1.0F);
  EXPECT_EQ(orthogonal.wait(), axis);
  EXPECT_THAT(equal.wait(), ElementsAre(3, 4));
}

int rounds_of_random_orders() {
  const char* const asked = std::getenv("NAMED_TEST_ROUNDS");  // by hand: as many as one likes
  return asked == nullptr ? 4 : std::atoi(asked);
}

// 200 tensors, submitted by two threads of each rank, in an order of its own for each rank and round. Tensor
// i has i % 37 + 1 elements of r + i, whose sum over r is n (n - 1) / 2 + n i.
RANKS_TEST(NamedEngine, AnyOrderOfSubmissionsGivesTheSameSums, Ranks(1, 2, 3, 4), Backends("shm", "tcp")) {
  Engine engine(world(), quick());
  constexpr int TENSORS = 200;
  std::mt19937 random(static_cast<unsigned>(rank()) * 1000 + 1);
  for (int round = 0; round < rounds_of_random_orders(); ++round) {
    std::vector<int> order(TENSORS);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    const auto half = [&](int from, int to) {
      std::vector<std::pair<int, NamedSum>> sums;
      for (int i = from; i < to; ++i) {
        const int tensor = order[static_cast<std::size_t>(i)];
        const std::vector<float> values(static_cast<std::size_t>(tensor % 37 + 1),
                                        static_cast<float>(rank() + tensor));
        sums.emplace_back(tensor, NamedSum(engine, std::to_string(tensor), values));
      }
      for (auto& [tensor, sum] : sums)
        EXPECT_THAT(sum.wait(), Each(static_cast<float>(size() * (size() - 1) / 2 + size() * tensor)));
    };
    std::thread other([&] { half(0, TENSORS / 2); });
    half(TENSORS / 2, TENSORS);
    other.join();
  }
}

// Each rank makes its first operations as it likes. Of round i, the sum over r of r + i is n (n - 1) / 2 + n
// i.
RANKS_TEST(NamedEngine, APreparedNameIsStartedAgainAndAgain, Ranks(1, 2, 3, 4),
           Backends("shm", "tcp", "thread")) {
  Engine engine(world(), quick());
  const float n = static_cast<float>(size());
  Request request = named_request(Kind::ALLREDUCE, "again", {3});
  request.op = Op::SUM;
  const auto prepared = engine.prepare(request);
  std::vector<std::vector<float>> inputs(2, std::vector<float>(3));
  std::vector<std::vector<float>> outputs = inputs;
  for (int round = 0; round < 20; ++round) {
    const auto turn = static_cast<std::size_t>(round % 2);
    std::vector<float>& input = inputs[turn];
    std::vector<float>& output = round % 3 == 0 ? input : outputs[turn];
    input.assign(3, static_cast<float>(rank() + round));
    if (round == 7 && size() > 1) {  // the ranks disagree; nothing is left of that
      Request other = request;
      other.op = rank() == 0 ? Op::MAX : Op::SUM;
      EXPECT_THROW(engine.submit({.request = other, .input = input.data(), .output = output.data()})->wait(),
                   Mismatch);
    }
    if (round % (rank() + 2) == 1) {
      engine.submit({.request = request, .input = input.data(), .output = output.data()})->wait();
    } else {
      engine.start(prepared, input.data(), output.data());
      prepared->wait();
    }
    ASSERT_THAT(output, Each(n * (n - 1) / 2 + n * static_cast<float>(round)));
  }
}

// The same tensors through five packings, in other orders and under other names: equal bits.
RANKS_TEST(NamedEngine, BitsDoNotDependOnThePacking, Ranks(2, 3, 4), Backends("shm", "hierarchical")) {
  constexpr std::size_t TENSORS = 24;
  std::mt19937 random(static_cast<unsigned>(rank()) + 5);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> given(TENSORS), first(TENSORS);
  for (std::size_t i = 0; i < TENSORS; ++i) {
    given[i].resize(1 + i * i * 13);
    for (float& value : given[i]) value = normal(random) * std::exp(3 * normal(random));
  }
  for (const std::size_t threshold : {std::size_t{0}, std::size_t{256}, std::size_t{5000},
                                      std::size_t{1} << 20U, std::size_t{128} << 20U}) {
    Settings settings = quick();
    settings.fusion_threshold = threshold;
    Engine engine(world(), settings);
    std::vector<std::size_t> order(TENSORS);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    std::vector<std::unique_ptr<NamedSum>> sums(TENSORS);
    for (const std::size_t i : order)
      sums[i] =
          std::make_unique<NamedSum>(engine, std::to_string(i), given[i], i % 2 == 0 ? Op::SUM : Op::AVERAGE);
    for (std::size_t i = 0; i < TENSORS; ++i) {
      const std::vector<float>& sum = sums[i]->wait();
      if (first[i].empty()) first[i] = sum;
      EXPECT_EQ(std::memcmp(sum.data(), first[i].data(), sum.size() * sizeof(float)), 0)
          << "tensor " << i << ", threshold " << threshold;
    }
    engine.submit({.request = {.kind = Kind::BARRIER, .name = "end"}})->wait();
  }
}

// In each round another rank runs out of data first; the others' averages count its zeros.
RANKS_TEST(NamedEngine, JoinedRanksGiveZeros, Ranks(1, 2, 3, 4), Backends("shm", "tcp")) {
  Engine engine(world(), quick());
  for (int first = 0; first < size(); ++first) {
    const auto join = [&] { return engine.submit({.request = {.kind = Kind::JOIN, .name = "join"}}); };
    if (rank() != first) {
      NamedSum average(engine, "x", {1}, Op::AVERAGE), sum(engine, "y", {2, 2});
      EXPECT_THAT(average.wait(), ElementsAre(::testing::FloatEq(static_cast<float>(size() - 1) /
                                                                 static_cast<float>(size()))));
      EXPECT_THAT(sum.wait(), Each(2 * (size() - 1)));
    }
    const auto joined = join();
    joined->wait();
    std::vector<float> all(static_cast<std::size_t>(size()));
    const float last = static_cast<float>(joined->result().number);
    NamedSum same(engine, "last", {last}, Op::MAX), least(engine, "least", {last}, Op::MIN);
    EXPECT_EQ(same.wait(), least.wait());
    if (size() > 1) EXPECT_NE(last, first);
  }
}

RANKS_TEST(NamedEngine, GroupsAndProcessSets, Ranks(2, 3, 4), Backends("shm", "thread", "tcp")) {
  Engine engine(world(), quick());
  const int ends = engine.add_process_set(size() == 2 ? std::vector{1} : std::vector{0, size() - 1});
  EXPECT_THAT([&] { engine.add_process_set(engine.process_sets().ranks(ends)); },
              ThrowsMessage<InvalidArgument>(HasSubstr("has these ranks already")));
  const std::vector<int> ranks = engine.process_sets().ranks(ends);
  const bool is_in = std::find(ranks.begin(), ranks.end(), rank()) != ranks.end();
  std::vector<float> x(3, static_cast<float>(rank())), y(2, 1);
  auto of_x = named_request(Kind::ALLREDUCE, "x", {3}), of_y = named_request(Kind::ALLREDUCE, "y", {2});
  of_x.op = of_y.op = Op::SUM;
  of_x.process_set = of_y.process_set = ends;
  std::vector<Submission> group = {{.request = of_x, .input = x.data(), .output = x.data()},
                                   {.request = of_y, .input = y.data(), .output = y.data()}};
  if (is_in) {
    for (const auto& one : engine.submit_all(group)) one->wait();
    EXPECT_THAT(x, Each(std::accumulate(ranks.begin(), ranks.end(), 0)));
    EXPECT_THAT(y, Each(ranks.size()));
  } else {
    EXPECT_THAT([&] { engine.submit_all(group); },
                ThrowsMessage<InvalidArgument>(HasSubstr("is not in process set 1, whose rank")));
  }
  NamedSum all(engine, "x", {1});
  EXPECT_THAT(all.wait(), ElementsAre(size()));
  engine.remove_process_set(ends);
  EXPECT_THAT([&] { engine.process_sets().ranks(ends); },
              ThrowsMessage<InvalidArgument>(HasSubstr("no process set 1")));
}

RANKS_TEST(NamedEngine, WritesATimeline, Ranks(2)) {
  const testing::TempFolder folder;
  const std::string path = folder / "timeline.json";
  {
    Engine engine(world(), quick());
    engine.start_timeline(path, true);
    for (int i = 0; i < 3; ++i) {
      NamedSum a(engine, "a", {1}), b(engine, "b", {1});
      a.wait();
      b.wait();
    }
    engine.submit({.request = {.kind = Kind::BARRIER, .name = "end"}})->wait();
    engine.stop_timeline();
  }
  if (rank() != 0) return;
  std::ifstream file(path);
  std::map<std::string, int> seen;
  for (const auto& event : nlohmann::json::parse(file)) {
    if (event.contains("name")) ++seen[event["name"]];
    if (event.value("ph", "") == "X") EXPECT_GE(event["dur"], 0);
  }
  EXPECT_EQ(seen["NEGOTIATE_ALLREDUCE"], 6);
  EXPECT_EQ(seen["ALLREDUCE"], 6);
  EXPECT_EQ(seen["REDUCE"], 6);
  EXPECT_EQ(seen["process_name"], 3);
  EXPECT_GE(seen["CYCLE_START"], 3);
}

}  // namespace
}  // namespace engine_ranks_test
}  // namespace lockstep::named
