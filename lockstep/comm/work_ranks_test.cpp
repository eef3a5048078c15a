// What a Work tells about its operation: callbacks, the error in words, and results that a later failure does
// not take away.
#include "lockstep/comm/work.h"

#include <stdexcept>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/collectives/collectives.h"
#include "testing/buffers.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

RANKS_TEST(Work, CallbacksRunOnceInOrderWithinTheWait, Ranks(1, 2, 3, 4), EveryBackend()) {
  std::vector<float> x(1000, 1);
  std::vector<int> calls;
  Work work = comm::all_reduce(world(), std::span(x), ReduceOp::SUM, /*async_op=*/true);
  work.add_callback([&](const Work& done) {
    EXPECT_TRUE(done.is_success());
    EXPECT_TRUE(all_are(x, static_cast<float>(size())));
    calls.push_back(1);
  });
  const Work copy = work;
  copy.add_callback([&](const Work&) { calls.push_back(2); });
  work.wait();
  EXPECT_THAT(calls, ElementsAre(1, 2));
  work.wait();
  EXPECT_TRUE(copy.is_completed());
  EXPECT_THAT(calls, ElementsAre(1, 2));
  work.add_callback([&](const Work&) { calls.push_back(3); });
  EXPECT_THAT(calls, ElementsAre(1, 2, 3));
}

RANKS_TEST(Work, ACallbackRunsWhenPollingSeesTheEnd, Ranks(1, 2, 3, 4), EveryBackend()) {
  int calls = 0;
  const Work work = comm::barrier(world(), /*async_op=*/true);
  work.add_callback([&](const Work&) { ++calls; });
  while (!work.is_completed()) {
  }
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(work.is_completed());
  EXPECT_EQ(calls, 1);
}

// No lock is held: a callback starts the next operation on the same group and waits for it.
RANKS_TEST(Work, ACallbackMayUseTheGroup, Ranks(1, 2, 3, 4), EveryBackend()) {
  int first = 1;
  int second = 10;
  Work work = comm::all_reduce(world(), std::span(&first, 1), ReduceOp::SUM, /*async_op=*/true);
  work.add_callback([&](const Work&) { comm::all_reduce(world(), std::span(&second, 1)); });
  work.wait();
  EXPECT_EQ(first, size());
  EXPECT_EQ(second, 10 * size());
}

RANKS_TEST(Work, WhatACallbackThrowsComesOutOfTheWait, Ranks(1, 2, 3), EveryBackend()) {
  int calls = 0;
  Work work = comm::barrier(world(), /*async_op=*/true);
  comm::barrier(world());  // so that it is done everywhere, and `self` has nothing of its own
  const auto add_and_wait = [&] {
    work.add_callback([](const Work&) { throw std::runtime_error("from the callback"); });
    work.wait();
  };
  EXPECT_THAT(add_and_wait, ThrowsMessage<std::runtime_error>(HasSubstr("from the callback")));
  work.add_callback([&](const Work&) { ++calls; });
  work.wait();
  EXPECT_EQ(calls, 1);
}

RANKS_TEST(Work, CallbacksRunWhenItFailsAndTheErrorHasAText, Ranks(2, 3, 4), Backends("thread", "shm")) {
  std::vector<float> x(10);
  std::string seen = "nothing";
  Work work = comm::irecv(world(), std::span(x), (rank() + 1) % size(), /*tag=*/5);  // which nobody sends
  work.add_callback([&](const Work& done) { seen = done.error_text(); });
  EXPECT_EQ(work.error_text(), "");
  comm::barrier(world());
  if (rank() == 0) world().abort("enough of it");
  EXPECT_THAT([&] { work.wait(); }, ThrowsMessage<Aborted>(HasSubstr("enough of it")));
  EXPECT_THAT(seen, HasSubstr("enough of it"));
  EXPECT_EQ(seen, work.error_text());
}

TEST(Work, AFinishedOneRunsCallbacksAtOnce) {
  int calls = 0;
  Work().add_callback([&](const Work& done) { calls += done.is_success() ? 1 : 0; });
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(Work().error_text(), "");
}

// Returns when this rank hears of the abort, without moving any operation on.
void wait_for_abort(const ProcessGroup& group) {
  try {
    while (true) group.allocate_shared(64);
  } catch (const Aborted&) {
    return;
  }
}

// Rank 0 posts its part of every verb and looks at none; the others finish all of them, then rank 1 aborts.
RANKS_TEST(Work, WhatIsCompleteStaysCompleteAfterAnAbort, Ranks(2, 3, 4), Backends("thread", "shm")) {
  const auto ranks = static_cast<std::size_t>(size());
  std::vector<float> sum(100003, 1);
  std::vector<int> cast(10, rank() == 1 ? 7 : 0);
  const std::vector<int> mine(5, rank());
  std::vector<int> gathered(5 * ranks);
  std::vector<int> exchanged(5 * ranks);
  std::vector<int> part(5);
  const std::vector<int> parts(5 * ranks, 3);
  int token = 0;
  if (rank() != 0) comm::recv(world(), std::span(&token, 1), 0);  // rank 0 has posted everything
  std::vector<Work> works = {
      comm::all_reduce(world(), std::span(sum), ReduceOp::SUM, /*async_op=*/true),
      comm::broadcast(world(), std::span(cast), 1, /*async_op=*/true),
      comm::all_gather(world(), std::span(mine), std::span(gathered), /*async_op=*/true),
      comm::reduce_scatter(world(), std::span(part), std::span(parts), ReduceOp::SUM, /*async_op=*/true),
      comm::all_to_all(world(), std::span(parts), std::span(exchanged), /*async_op=*/true),
  };
  for (int r = 1; r < size() && rank() == 0; ++r) comm::isend(world(), std::span<const int>(&token, 1), r);
  if (rank() != 0) {
    for (Work& work : works) work.wait();
  }
  if (rank() > 1) comm::send(world(), std::span<const int>(&token, 1), 1);
  for (int r = 2; r < size() && rank() == 1; ++r) comm::recv(world(), std::span(&token, 1), r);
  if (rank() == 1) world().abort("on purpose");
  wait_for_abort(world());
  for (Work& work : works) EXPECT_NO_THROW(work.wait());
  EXPECT_TRUE(all_are(sum, static_cast<float>(size())));
  EXPECT_TRUE(all_are(cast, 7));
  for (std::size_t i = 0; i < gathered.size(); ++i) EXPECT_EQ(gathered[i], static_cast<int>(i / 5));
  EXPECT_TRUE(all_are(part, 3 * size()));
  EXPECT_TRUE(all_are(exchanged, 3));
  EXPECT_THAT([&] { comm::barrier(world()); }, ThrowsMessage<Aborted>(HasSubstr("on purpose")));
}

}  // namespace
}  // namespace lockstep
