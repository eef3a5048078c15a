#include "lockstep/comm/backends/shared/thread_backend.h"

#include <gmock/gmock.h>

#include <numeric>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/comm/collectives/collectives.h"
#include "testing/reference.h"

namespace lockstep {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

template <typename Body> void on_threads(int size, Body body, const GroupOptions& options = {}) {
  auto groups = make_thread_groups(size, options);
  std::vector<std::jthread> ranks;
  for (auto& group : groups) ranks.emplace_back([&group, &body] { body(group); });
}

TEST(ThreadBackend, SumsAreRightForManyOperationsInFlight) {
  constexpr int COUNT = reference::THOROUGH ? 200 : 80;
  on_threads(3, [](const ProcessGroup& group) {
    std::vector<std::vector<float>> data;
    std::vector<Work> works;
    for (int i = 0; i < COUNT; ++i) data.emplace_back(100 * i, static_cast<float>(group.rank() + i));
    for (auto& x : data) works.push_back(comm::all_reduce(group, std::span(x), ReduceOp::SUM, true));
    while (!works.empty()) {
      works.back().wait();
      works.pop_back();
    }
    for (int i = 0; i < COUNT; ++i) EXPECT_THAT(data[i], Each(static_cast<float>(3 + 3 * i)));
  });
}

TEST(ThreadBackend, MessagesOfDifferentTagsArriveInAnyOrder) {
  on_threads(2, [](const ProcessGroup& group) {
    std::vector<int> a = {1, 2, 3};
    std::vector<int> b = {4};
    if (group.rank() == 0) {
      comm::send(group, std::span<const int>(a), 1, 7);
      comm::send(group, std::span<const int>(b), 1, 8);
    } else {
      std::vector<int> x(3);
      std::vector<int> y(1);
      EXPECT_EQ(comm::recv(group, std::span(y), 0, 8), 0);
      EXPECT_EQ(comm::recv(group, std::span(x), 0, 7), 0);
      EXPECT_EQ(x, a);
      EXPECT_EQ(y, b);
    }
  });
}

TEST(ThreadBackend, DisagreementIsToldToBothSides) {
  on_threads(2, [](const ProcessGroup& group) {
    const auto disagree = [&] {
      std::vector<float> x(10);
      if (group.rank() == 0) comm::all_reduce(group, std::span(x));
      if (group.rank() == 1) comm::broadcast(group, std::span(x), 0);
    };
    EXPECT_THAT(disagree,
                ThrowsMessage<Mismatch>(::testing::AllOf(HasSubstr("all_reduce(float32[10], sum)"),
                                                         HasSubstr("broadcast(float32[10], root 0)"))));
  });
}

// Two ranks: one of three could be as late as the one that does not come.
TEST(ThreadBackend, LateRankIsNamedInTheTimeout) {
  on_threads(2,
             [](const ProcessGroup& group) {
               if (group.rank() == 0) {
                 EXPECT_THAT([&] { comm::barrier(group); },
                             ThrowsMessage<Timeout>(HasSubstr("waiting for rank 1")));
               }
             },
             {.timeout = std::chrono::milliseconds(50)});
}

TEST(ThreadBackend, SharedMemoryIsReducedInPlace) {
  on_threads(4, [](const ProcessGroup& group) {
    constexpr std::size_t COUNT = 1 << 20;
    const auto memory = group.allocate_shared(COUNT * sizeof(double));
    const std::span<double> x(static_cast<double*>(memory.get()), COUNT);
    std::iota(x.begin(), x.end(), group.rank());
    comm::all_reduce(group, x, ReduceOp::AVG);
    for (std::size_t i = 0; i < COUNT; i += 4097) EXPECT_EQ(x[i], static_cast<double>(i) + 1.5);
    comm::barrier(group);
  });
}

}  // namespace
}  // namespace lockstep
