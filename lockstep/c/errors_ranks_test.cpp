// Every code that a program can meet, provoked as a program would.
#include <chrono>
#include <cstdint>
#include <limits>

#include "testing/c_calls.h"
#include "testing/ranks.h"
#include "testing/temp_folder.h"

namespace lockstep {
namespace c_errors_test {

using testing::CWorld;
using testing::failed;
using testing::ok;

constexpr std::size_t HUGE_COUNT = std::numeric_limits<std::size_t>::max() / 2;

RANKS_TEST(CErrors, MistakesAreFoundBeforeAnythingIsSent, Ranks(1, 2), Backends("shm")) {
  const lockstep_group all = LOCKSTEP_WORLD;
  float x[8] = {};
  const std::size_t counts[] = {HUGE_COUNT, HUGE_COUNT};
  lockstep_work work = 7;
  const auto mistake = [](int code, const char* text) {
    EXPECT_TRUE(failed(LOCKSTEP_ERROR_INVALID_ARGUMENT, code, text));
  };
  mistake(lockstep_all_reduce(all, x, 1, 15, LOCKSTEP_SUM, &work), "dtype 15 is none of enum lockstep_dtype");
  EXPECT_EQ(work, 0);
  mistake(lockstep_all_reduce(all, x, 1, -1, LOCKSTEP_SUM, nullptr), "lockstep_all_reduce: dtype -1");
  mistake(lockstep_all_reduce(all, x, 1, LOCKSTEP_FLOAT32, 8, nullptr), "op 8 is none of enum lockstep_op");
  mistake(lockstep_all_reduce(all, x, 1, LOCKSTEP_FLOAT32, LOCKSTEP_BOR, nullptr), "no bor of float32");
  mistake(lockstep_all_reduce(all, nullptr, 1, LOCKSTEP_FLOAT32, LOCKSTEP_SUM, nullptr), "is null");
  mistake(lockstep_all_reduce(all, x, HUGE_COUNT, LOCKSTEP_FLOAT32, LOCKSTEP_SUM, nullptr), "too many");
  mistake(
      lockstep_all_reduce(all, reinterpret_cast<char*>(x) + 1, 1, LOCKSTEP_FLOAT32, LOCKSTEP_SUM, nullptr),
      "aligned to 4 bytes");
  mistake(lockstep_all_gather(all, x, x, HUGE_COUNT, LOCKSTEP_FLOAT32, nullptr), "too many");
  mistake(lockstep_all_gather(all, x, nullptr, 1, LOCKSTEP_FLOAT32, nullptr), "output is NULL");
  mistake(lockstep_all_gatherv(all, x, x, nullptr, LOCKSTEP_FLOAT32, nullptr), "counts is NULL");
  mistake(lockstep_all_gatherv(all, x, x, counts, LOCKSTEP_FLOAT32, nullptr), "too many elements");
  mistake(lockstep_broadcast(all, x, 1, LOCKSTEP_FLOAT32, size(), nullptr), "is not a rank of the group");
  mistake(lockstep_send(all, x, 1, LOCKSTEP_FLOAT32, rank(), 0, nullptr), "this rank itself");
  mistake(lockstep_rank(all, nullptr), "rank is NULL");
  mistake(lockstep_group_free(all), "left by lockstep_shutdown()");
  mistake(lockstep_init(nullptr), "already initialised; call lockstep_shutdown() first");
  EXPECT_TRUE(ok(lockstep_barrier(all, nullptr)));  // the group is usable
}

RANKS_TEST(CErrors, HandlesThatAreNullOrFreed, Ranks(1, 2), Backends("shm")) {
  const auto invalid = [](int code, const char* text) {
    EXPECT_TRUE(failed(LOCKSTEP_ERROR_INVALID_HANDLE, code, text));
  };
  float x = 0;
  int number = 0;
  invalid(lockstep_all_reduce(0, &x, 1, LOCKSTEP_FLOAT32, LOCKSTEP_SUM, nullptr),
          "lockstep_all_reduce: the handle of a group, 0, is null");
  invalid(lockstep_work_wait(LOCKSTEP_WORLD, 0), "is LOCKSTEP_WORLD, a group");
  invalid(lockstep_objects_free(12345), "was never given");
  invalid(lockstep_store_free(0), "the handle of a store, 0, is null");
  lockstep_work work = 0;
  EXPECT_TRUE(ok(lockstep_barrier(LOCKSTEP_WORLD, &work)));
  invalid(lockstep_rank(work, &number), "is one of a work");
  EXPECT_TRUE(ok(lockstep_work_wait(work, 0)));
  EXPECT_TRUE(ok(lockstep_work_free(work)));
  invalid(lockstep_work_free(work), "was freed");
  invalid(lockstep_work_test(work, &number), "was freed");
  const int none[] = {0};
  lockstep_group group = 0;
  EXPECT_TRUE(ok(lockstep_new_group(none, 1, nullptr, &group)));
  EXPECT_TRUE(ok(lockstep_group_free(group)));
  invalid(lockstep_barrier(group, nullptr), "was freed");
  void* memory = nullptr;
  EXPECT_TRUE(ok(lockstep_allocate_shared(LOCKSTEP_WORLD, 100, &memory)));
  EXPECT_TRUE(ok(lockstep_free_shared(memory)));
  invalid(lockstep_free_shared(memory), "memory was freed");
  invalid(lockstep_free_shared(nullptr), "memory is NULL");
  invalid(lockstep_free_shared(&x), "no address that");
}

RANKS_TEST(CErrors, ARankThatDoesNotComeIsATimeout, Ranks(2), Backends("shm", "tcp")) {
  lockstep_group_options options = LOCKSTEP_GROUP_OPTIONS;
  options.timeout_ms = 200;
  options.name = "impatient";
  const int ranks[] = {0, 1};
  lockstep_group group = 0;
  ASSERT_TRUE(ok(lockstep_new_group(ranks, 2, &options, &group)));
  if (rank() == 0) {
    lockstep_work work = 0;
    int done = 0;
    EXPECT_TRUE(ok(lockstep_barrier(group, &work)));
    EXPECT_TRUE(failed(LOCKSTEP_ERROR_TIMEOUT, lockstep_work_wait(work, 0), "waiting for rank 1"));
    EXPECT_TRUE(failed(LOCKSTEP_ERROR_TIMEOUT, lockstep_work_test(work, &done), "on group \"impatient\""));
    EXPECT_EQ(done, 1);
    EXPECT_TRUE(failed(LOCKSTEP_ERROR_TIMEOUT, lockstep_barrier(group, nullptr), "waiting for rank 1"));
  }
  EXPECT_TRUE(ok(lockstep_barrier(LOCKSTEP_WORLD, nullptr)));  // another group
}

RANKS_TEST(CErrors, OtherCallsAreAMismatchOnEveryRank, Ranks(2, 3), Backends("shm", "tcp")) {
  float x[2] = {};
  const std::size_t count = rank() == 0 ? 1 : 2;
  const int code = lockstep_all_reduce(LOCKSTEP_WORLD, x, count, LOCKSTEP_FLOAT32, LOCKSTEP_SUM, nullptr);
  EXPECT_TRUE(failed(LOCKSTEP_ERROR_MISMATCH, code, "all_reduce(float32[1], sum)"));
}

RANKS_TEST(CErrors, AnAbortReachesEveryRank, Ranks(2, 3), Backends("shm", "tcp")) {
  const CWorld c(world());
  if (rank() == 0) EXPECT_TRUE(ok(lockstep_group_abort(c.handle(), "the loss is not finite")));
  EXPECT_TRUE(
      failed(LOCKSTEP_ERROR_ABORTED, lockstep_barrier(c.handle(), nullptr), "the loss is not finite"));
}

// The text names the dead rank, and so does the number beside it.
RANKS_TEST(CErrors, ADeadRankIsNamed, Ranks(4), Backends("shm", "tcp"), Dies({2})) {
  EXPECT_TRUE(ok(lockstep_barrier(LOCKSTEP_WORLD, nullptr)));
  if (rank() == 2) die();
  const int code = lockstep_barrier(LOCKSTEP_WORLD, nullptr);
  EXPECT_TRUE(failed(LOCKSTEP_ERROR_PEER_LOST, code, "rank 2"));
  EXPECT_EQ(lockstep_error_peer(), 2);
  EXPECT_TRUE(failed(LOCKSTEP_ERROR_PEER_LOST, lockstep_barrier(LOCKSTEP_WORLD, nullptr), "rank 2"));
}

RANKS_TEST(CErrors, OfFilesStoresAndMemory, Ranks(1), Backends("shm")) {
  const testing::TempFolder folder;
  lockstep_store store = 0;
  lockstep_objects value = 0;
  EXPECT_TRUE(failed(LOCKSTEP_ERROR_SYSTEM, lockstep_store_open_file((folder / "no/store").c_str(), &store),
                     "No such file or directory"));
  EXPECT_EQ(lockstep_error_number(), ENOENT);
  ASSERT_TRUE(ok(lockstep_store_open_file((folder / "store").c_str(), &store)));
  EXPECT_TRUE(failed(LOCKSTEP_ERROR_STORE, lockstep_store_get(store, "address", 1, &value), "address"));
  EXPECT_TRUE(
      failed(LOCKSTEP_ERROR_STORE, lockstep_store_set(store, "key", &value, HUGE_COUNT), "too large"));
  EXPECT_TRUE(ok(lockstep_store_free(store)));
  void* memory = nullptr;
  EXPECT_TRUE(
      failed(LOCKSTEP_ERROR_OUT_OF_MEMORY,
             lockstep_allocate_shared(LOCKSTEP_WORLD, std::numeric_limits<std::size_t>::max(), &memory),
             "lockstep_allocate_shared"));
  EXPECT_EQ(memory, nullptr);
}

// Something else than an object arrives where one is expected: a number that is no size.
RANKS_TEST(CErrors, WhatIsNoObjectIsAFormatError, Ranks(2), Backends("shm", "tcp")) {
  const std::uint64_t huge = std::uint64_t{1} << 40U;
  if (rank() == 0) {
    EXPECT_TRUE(ok(lockstep_send(LOCKSTEP_WORLD, &huge, 1, LOCKSTEP_UINT64, 1, 0, nullptr)));
  } else {
    lockstep_objects objects = 7;
    EXPECT_TRUE(failed(LOCKSTEP_ERROR_FORMAT, lockstep_recv_object(LOCKSTEP_WORLD, 0, 0, nullptr, &objects),
                       "rank 0 announced an object"));
    EXPECT_EQ(objects, 0);
  }
}

}  // namespace c_errors_test
}  // namespace lockstep
