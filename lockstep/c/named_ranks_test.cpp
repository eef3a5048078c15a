// Operations by name through the C interface, and that a second start follows a shutdown.
#include "lockstep/c/named.h"

#include <atomic>
#include <thread>
#include <vector>

#include "testing/c_calls.h"
#include "testing/ranks.h"

namespace lockstep {
namespace c_named_test {

using testing::failed;
using testing::ok;

lockstep_named_request request_of(const char* name, const int64_t* shape, float* data) {
  lockstep_named_request request = LOCKSTEP_NAMED_REQUEST;
  request.name = name;
  request.dtype = LOCKSTEP_FLOAT32;
  request.op = LOCKSTEP_NAMED_SUM;
  request.shape = shape;
  request.dimensions = 1;
  request.input = request.output = data;
  return request;
}

// One that is awaited, one that waits for the cycle time, and one that is done already.
void check_notices(int rank, int size) {
  const int64_t shape[1] = {1};
  for (const int is_awaited : {1, 0}) {
    float mine = static_cast<float>(rank + 1);
    lockstep_named_request request = request_of("told", shape, &mine);
    lockstep_named operation = 0;
    std::atomic<int> told = 0;
    const auto tell = [](void* context) { static_cast<std::atomic<int>*>(context)->fetch_add(1); };
    ASSERT_TRUE(ok(lockstep_named_submit(&request, 1, &operation)));
    ASSERT_TRUE(ok(lockstep_named_notify(operation, tell, &told, is_awaited)));
    while (told.load() == 0) std::this_thread::yield();
    EXPECT_EQ(mine, static_cast<float>(size * (size + 1) / 2));
    EXPECT_TRUE(ok(lockstep_named_wait(operation)));
    ASSERT_TRUE(ok(lockstep_named_notify(operation, tell, &told, is_awaited)));
    EXPECT_EQ(told.load(), 2);
    EXPECT_TRUE(failed(LOCKSTEP_ERROR_INVALID_ARGUMENT, lockstep_named_notify(operation, nullptr, nullptr, 0),
                       "ended is NULL"));
    EXPECT_TRUE(ok(lockstep_named_free(operation)));
  }
}

// Rank r gives r + 1 numbers r.
void check_results_of_their_own(int rank, int size) {
  std::vector<float> mine(static_cast<size_t>(rank + 1), static_cast<float>(rank));
  const int64_t shape[1] = {rank + 1};
  lockstep_named_request request = request_of("rows", shape, mine.data());
  request.kind = LOCKSTEP_NAMED_ALLGATHER;
  lockstep_named operation = 0;
  ASSERT_TRUE(ok(lockstep_named_submit(&request, 1, &operation)));
  ASSERT_TRUE(ok(lockstep_named_wait(operation)));
  void* data = nullptr;
  int64_t rows = 0;
  ASSERT_TRUE(ok(lockstep_named_result(operation, &data, &rows)));
  ASSERT_EQ(rows, size * (size + 1) / 2);
  EXPECT_EQ(static_cast<float*>(data)[rows - 1], static_cast<float>(size - 1));
  EXPECT_TRUE(ok(lockstep_named_free(operation)));
  EXPECT_TRUE(failed(LOCKSTEP_ERROR_INVALID_HANDLE, lockstep_named_wait(operation), "named operation"));

  check_notices(rank, size);
  lockstep_named_request join = LOCKSTEP_NAMED_REQUEST;
  join.kind = LOCKSTEP_NAMED_JOIN;
  ASSERT_TRUE(ok(lockstep_named_submit(&join, 1, &operation)));
  ASSERT_TRUE(ok(lockstep_named_wait(operation)));
  int last = -1;
  ASSERT_TRUE(ok(lockstep_named_last_joined(operation, &last)));
  EXPECT_TRUE(last >= 0 && last < size);
}

void check_finish_of_a_failure(int rank) {
  float mine = 0;
  const int64_t shape[1] = {1};
  lockstep_named_request request = request_of("differs", shape, &mine);
  request.op = rank == 0 ? LOCKSTEP_NAMED_MIN : LOCKSTEP_NAMED_MAX;
  lockstep_named operation = 0;
  ASSERT_TRUE(ok(lockstep_named_submit(&request, 1, &operation)));
  EXPECT_TRUE(failed(LOCKSTEP_ERROR_MISMATCH, lockstep_named_finish(operation), "differs"));
  EXPECT_TRUE(failed(LOCKSTEP_ERROR_INVALID_HANDLE, lockstep_named_wait(operation), "named operation"));
}

// The header's example.
void check_prepared(int size) {
  const int64_t one[1] = {1};
  lockstep_named_request request = request_of("again", one, nullptr);
  lockstep_named sum = 0;
  ASSERT_TRUE(ok(lockstep_named_prepare(&request, &sum)));
  for (int step = 0; step < 3; ++step) {
    float gradient = static_cast<float>(step);
    ASSERT_TRUE(ok(lockstep_named_start(sum, &gradient, &gradient)));
    std::atomic<int> told = 0;
    const auto tell = [](void* context) { static_cast<std::atomic<int>*>(context)->fetch_add(1); };
    if (step != 1) ASSERT_TRUE(ok(lockstep_named_notify(sum, tell, &told, /*is_awaited=*/1)));
    while (step != 1 && told.load() == 0) std::this_thread::yield();
    ASSERT_TRUE(ok(lockstep_named_wait(sum)));
    EXPECT_EQ(gradient, static_cast<float>(size * step));
  }
  EXPECT_TRUE(ok(lockstep_named_free(sum)));
  EXPECT_TRUE(
      failed(LOCKSTEP_ERROR_INVALID_HANDLE, lockstep_named_start(sum, one, nullptr), "named operation"));
  request.kind = LOCKSTEP_NAMED_JOIN;
  EXPECT_TRUE(
      failed(LOCKSTEP_ERROR_INVALID_ARGUMENT, lockstep_named_prepare(&request, &sum), "can be prepared"));
  EXPECT_EQ(sum, 0);
}

RANKS_TEST(CNamed, MatchesByNameAndStartsAgain, Ranks(1, 2, 3), WithoutGroup()) {
  for (int round = 0; round < 2; ++round) {
    const int first[1] = {0};
    const size_t count = 1;
    EXPECT_EQ(lockstep_named_is_initialized(), 0);
    const bool has_set = size() > 1;  // of one rank alone the set of all is the same
    ASSERT_TRUE(ok(lockstep_named_init(first, &count, has_set ? 1 : 0)));
    EXPECT_EQ(lockstep_named_is_initialized(), 1);
    float a = 1, b = 2;
    const int64_t one[1] = {1};
    const lockstep_named_request both[2] = {request_of("a", one, &a), request_of("b", one, &b)};
    lockstep_named operations[2] = {0, 0};
    ASSERT_TRUE(ok(lockstep_named_submit(both, 2, operations)));
    EXPECT_TRUE(ok(lockstep_named_wait(operations[1])));
    for (const lockstep_named operation : operations) {
      EXPECT_TRUE(ok(lockstep_named_finish(operation)));
      EXPECT_TRUE(failed(LOCKSTEP_ERROR_INVALID_HANDLE, lockstep_named_finish(operation), "named operation"));
    }
    EXPECT_EQ(a, static_cast<float>(size()));
    EXPECT_EQ(b, static_cast<float>(2 * size()));
    int place = 7, members = 0, id = 0;
    if (has_set) {
      EXPECT_TRUE(ok(lockstep_named_process_set(1, &place, &members)));
      EXPECT_EQ(place, rank() == 0 ? 0 : -1);
      EXPECT_EQ(members, 1);
      const int last[1] = {size() - 1};
      ASSERT_TRUE(ok(lockstep_named_add_process_set(last, 1, &id)));
      EXPECT_EQ(id, 2);
      EXPECT_TRUE(ok(lockstep_named_remove_process_set(id)));
    }
    EXPECT_TRUE(failed(LOCKSTEP_ERROR_INVALID_ARGUMENT, lockstep_named_process_set(9, &place, &members),
                       "no process set 9"));
    check_results_of_their_own(rank(), size());
    check_prepared(size());
    if (size() > 1) check_finish_of_a_failure(rank());
    ASSERT_TRUE(ok(lockstep_named_shutdown()));
    const lockstep_named_request late = request_of("late", one, &a);
    EXPECT_TRUE(failed(LOCKSTEP_ERROR_INVALID_ARGUMENT, lockstep_named_submit(&late, 1, operations),
                       "call init() first"));
  }
}

}  // namespace c_named_test
}  // namespace lockstep
