// If ranks disagree about a call, all get an error that shows both calls, and can make a new group.
#include <functional>

#include "lockstep/base/error.h"
#include "lockstep/comm/collectives/collectives.h"
#include "testing/buffers.h"
#include "testing/ranks.h"
#include "testing/reference.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct OddCall {
  std::string text;  // the form in errors
  std::function<void(const ProcessGroup&)> make;
};

template <typename T> OddCall all_reduce_call(std::size_t count, ReduceOp op) {
  return {str("all_reduce(", name_of(dtype_of<T>()), "[", count, "], ", name_of(op), ")"),
          [=](const auto& group) {
            std::vector<T> x(count);
            comm::all_reduce(group, std::span(x), op);
          }};
}

template <typename T> OddCall broadcast_call(std::size_t count, int root) {
  return {str("broadcast(", name_of(dtype_of<T>()), "[", count, "], root ", root, ")"),
          [=](const auto& group) {
            std::vector<T> x(count);
            comm::broadcast(group, std::span(x), root);
          }};
}

template <typename T> OddCall all_gather_call(std::size_t count) {
  return {str("all_gather(", name_of(dtype_of<T>()), "[", count, "])"), [=](const auto& group) {
            const std::vector<T> x(count);
            std::vector<T> all(count * static_cast<std::size_t>(group.size()));
            comm::all_gather(group, std::span<const T>(x), std::span(all));
          }};
}

template <typename T> OddCall reduce_call(std::size_t count, ReduceOp op, int root) {
  return {str("reduce(", name_of(dtype_of<T>()), "[", count, "], ", name_of(op), ", root ", root, ")"),
          [=](const auto& group) {
            std::vector<T> x(count);
            comm::reduce(group, std::span(x), root, op);
          }};
}

template <typename T> OddCall gather_call(std::size_t count, int root) {
  return {str("gather(", name_of(dtype_of<T>()), "[", count, "], root ", root, ")"), [=](const auto& group) {
            const std::vector<T> x(count);
            std::vector<T> all(group.rank() == root ? count * static_cast<std::size_t>(group.size()) : 0);
            if (group.rank() == root) {
              comm::gather(group, std::span<const T>(x), std::span(all), root);
            } else {
              comm::gather(group, std::span<const T>(x), std::vector<std::span<T>>(), root);
            }
          }};
}

template <typename T> OddCall scatter_call(std::size_t count, int root) {
  return {str("scatter(", name_of(dtype_of<T>()), "[", count, "], root ", root, ")"), [=](const auto& group) {
            std::vector<T> x(count);
            const std::vector<T> all(count * static_cast<std::size_t>(group.size()));
            if (group.rank() == root) {
              comm::scatter(group, std::span(x), std::span<const T>(all), root);
            } else {
              comm::scatter(group, std::span(x), std::vector<std::span<const T>>(), root);
            }
          }};
}

template <typename T> OddCall reduce_scatter_call(std::size_t count, ReduceOp op) {
  return {str("reduce_scatter(", name_of(dtype_of<T>()), "[", count, "], ", name_of(op), ")"),
          [=](const auto& group) {
            std::vector<T> x(count);
            const std::vector<T> all(count * static_cast<std::size_t>(group.size()));
            comm::reduce_scatter(group, std::span(x), std::span<const T>(all), op);
          }};
}

template <typename T> OddCall all_to_all_call(std::size_t count, int ranks) {
  const std::size_t total = count * static_cast<std::size_t>(ranks);
  return {str("all_to_all(", name_of(dtype_of<T>()), "[", total, "])"), [=](const auto& group) {
            const std::vector<T> input(total);
            std::vector<T> output(total);
            comm::all_to_all(group, std::span(input), std::span(output));
          }};
}

// Every two of these differ in the verb, the element type, the count, the operator or the root.
std::vector<OddCall> calls(int ranks) {
  return {
      {"barrier()", [](const auto& group) { comm::barrier(group); }},
      all_reduce_call<float>(10, ReduceOp::SUM),
      all_reduce_call<float>(10, ReduceOp::AVG),
      all_reduce_call<float>(10, ReduceOp::MAX),
      all_reduce_call<float>(11, ReduceOp::SUM),
      all_reduce_call<float>(0, ReduceOp::SUM),
      all_reduce_call<std::int32_t>(10, ReduceOp::SUM),
      all_reduce_call<double>(5, ReduceOp::SUM),  // the same number of bytes as ten float32
      all_reduce_call<float>(300000, ReduceOp::SUM),
      broadcast_call<float>(10, 0),
      broadcast_call<float>(10, 1),
      broadcast_call<float>(9, 0),
      broadcast_call<std::int64_t>(10, 0),
      all_gather_call<float>(10),
      all_gather_call<float>(9),
      all_gather_call<std::uint8_t>(10),
      reduce_call<float>(10, ReduceOp::SUM, 0),
      reduce_call<float>(10, ReduceOp::SUM, 1),
      reduce_call<float>(10, ReduceOp::MIN, 0),
      reduce_call<std::int32_t>(10, ReduceOp::BAND, 0),
      gather_call<float>(10, 0),
      gather_call<double>(10, 1),
      scatter_call<float>(10, 0),
      scatter_call<float>(10, 1),
      reduce_scatter_call<float>(10, ReduceOp::SUM),
      reduce_scatter_call<std::uint8_t>(10, ReduceOp::BXOR),
      all_to_all_call<float>(10, ranks),
      all_to_all_call<std::int64_t>(10, ranks),
  };
}

// Returns the text of the Mismatch that this rank gets, at the call or at one of the two barriers after it.
// Over messages only ranks that talk to each other notice a disagreement, in the first barrier at the latest.
// Other ranks may complete that barrier. A rank that noticed takes no part in the second.
std::string disagreement(const ProcessGroup& group, const OddCall& call) {
  try {
    call.make(group);
    comm::barrier(group);
    comm::barrier(group);
  } catch (const Mismatch& mismatch) {
    return mismatch.what();
  }
  return "no Mismatch";
}

void check_later_calls(const ProcessGroup& group) {
  float x = 0;
  EXPECT_THAT([&] { comm::all_reduce(group, std::span(&x, 1)); },
              ::testing::ThrowsMessage<Mismatch>(HasSubstr("ranks disagree")));
}

// Rank `odd` makes one call, the other ranks another.
void check_pair(const ProcessGroup& group, int odd, const OddCall& odd_call, const OddCall& usual_call) {
  EXPECT_THAT(disagreement(group, group.rank() == odd ? odd_call : usual_call),
              AllOf(HasSubstr("ranks disagree about collective #1"), HasSubstr(odd_call.text),
                    HasSubstr(usual_call.text), HasSubstr(str("rank ", odd)),
                    HasSubstr(str("group \"", group.name(), "\""))))
      << "rank " << odd << " called " << odd_call.text << ", the others " << usual_call.text;
  check_later_calls(group);
}

// Each ordered pair gets a new group of all ranks. The parent group stays usable.
RANKS_TEST(Mismatch, EveryPairOfCallsIsToldToEveryRank, Ranks(2, 3, 4), BackendsWithPeers()) {
  const std::vector<OddCall> table = calls(size());
  for (std::size_t i = 0; i < table.size(); ++i) {
    for (std::size_t j = 0; j < table.size(); ++j) {
      const bool are_neighbours = j == (i + 1) % table.size();
      if (i == j || (!reference::THOROUGH && !are_neighbours)) continue;
      const ProcessGroup pair(world().backend().split({world().ranks()}, "pair", {}), world().ranks());
      check_pair(pair, static_cast<int>(i + j) % size(), table[i], table[j]);
    }
  }
  int x = rank();
  comm::all_reduce(world(), std::span(&x, 1));
  EXPECT_EQ(x, size() * (size() - 1) / 2);
}

RANKS_TEST(Mismatch, TheWorldCanBeJoinedAgain, Ranks(2, 3, 4), BackendsWithPeers(), Except("thread")) {
  const std::vector<OddCall> table = calls(size());
  for (std::size_t i = 1; i < table.size(); ++i) {
    check_pair(world(), static_cast<int>(i) % size(), table[i - 1], table[i]);
    rejoin();
  }
  int x = rank();
  comm::all_reduce(world(), std::span(&x, 1));
  EXPECT_EQ(x, size() * (size() - 1) / 2);
}

// Pending operations fail too. Operations that were complete before the disagreement stay complete.
RANKS_TEST(Mismatch, PendingOperationsFailAndFinishedOnesStay, Ranks(2, 3, 4), BackendsWithPeers()) {
  std::vector<float> x(100, 1);
  std::vector<float> y(100, 1);
  comm::all_reduce(world(), std::span(x));
  Work pending = comm::irecv(world(), std::span(y), (rank() + 1) % size(), /*tag=*/9);  // no rank sends this
  int token = 0;
  if (rank() != 1) comm::send(world(), std::span<const int>(&token, 1), 1);
  // Rank 1 disagrees when the other ranks have finished the first.
  for (int r = 0; r < size() && rank() == 1; ++r) {
    if (r != 1) comm::recv(world(), std::span(&token, 1), r);
  }
  const auto disagree = [&] {
    float z = 0;
    comm::all_reduce(world(), std::span(&z, 1), rank() == 1 ? ReduceOp::MIN : ReduceOp::MAX);
    comm::barrier(world());
  };
  EXPECT_THAT(disagree, ::testing::ThrowsMessage<Mismatch>(HasSubstr("collective #2")));
  EXPECT_THAT([&] { pending.wait(); },
              ::testing::ThrowsMessage<Mismatch>(AllOf(HasSubstr("recv"), HasSubstr("collective #2"))));
  EXPECT_TRUE(all_are(x, static_cast<float>(size())));
}

// Uneven contributions are valid if every rank expects them. A rank that expects others gets an error.
RANKS_TEST(Mismatch, AllGatherWithOtherSizesThanExpected, Ranks(2, 3, 4), BackendsWithPeers()) {
  const std::vector<float> mine(rank() == 0 ? 5 : 4);
  std::vector<std::vector<float>> everyone(static_cast<std::size_t>(size()), std::vector<float>(4));
  everyone[static_cast<std::size_t>(rank())].resize(mine.size());
  std::vector<std::span<float>> outputs(everyone.begin(), everyone.end());
  const auto gather = [&] {
    comm::all_gather(world(), std::span<const float>(mine), outputs);
    comm::barrier(world());
  };
  EXPECT_THAT(gather, ::testing::ThrowsMessage<Mismatch>(AllOf(HasSubstr("expects 4 elements of rank 0"),
                                                               HasSubstr("all_gather(float32[5])"))));
}

// Also if the rank is on the same machine, where no message would tell (hierarchical).
RANKS_TEST(Mismatch, OneRankExpectsOtherSizes, Ranks(2, 3, 4), BackendsWithPeers()) {
  const std::vector<float> mine(4);
  std::vector<std::vector<float>> everyone(static_cast<std::size_t>(size()), std::vector<float>(4));
  if (rank() == size() - 1) everyone[static_cast<std::size_t>(size()) - 2].resize(7);
  std::vector<std::span<float>> outputs(everyone.begin(), everyone.end());
  const auto gather = [&] {
    comm::all_gather(world(), std::span<const float>(mine), outputs);
    comm::barrier(world());
  };
  EXPECT_THAT(gather, ::testing::ThrowsMessage<Mismatch>(AllOf(HasSubstr("expects 7 elements of rank"),
                                                               HasSubstr("all_gather(float32[4])"))));
}

// A rank that makes one call fewer than the other ranks is found at its next call.
RANKS_TEST(Mismatch, AForgottenCallShowsAtTheNext, Ranks(2, 3), BackendsWithPeers()) {
  std::vector<float> x(10);
  const auto train = [&] {
    for (int step = 0; step < 5; ++step) {
      comm::all_reduce(world(), std::span(x));
      if (step != 2 || rank() != 1) comm::broadcast(world(), std::span(x), 0);
    }
    comm::barrier(world());
  };
  EXPECT_THAT(train, ::testing::ThrowsMessage<Mismatch>(AllOf(HasSubstr("collective #6"),
                                                              HasSubstr("all_reduce(float32[10], sum)"),
                                                              HasSubstr("broadcast(float32[10], root 0)"))));
}

}  // namespace
}  // namespace lockstep
