// Joining and leaving through C, alone and together with C++ in one process; groups, objects and memory.
#include "lockstep/c/job.h"

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/base/environment.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/all_reduce.h"
#include "lockstep/job/groups.h"
#include "lockstep/os/secret.h"
#include "testing/c_calls.h"
#include "testing/ranks.h"
#include "testing/shared_folder.h"

namespace lockstep {
namespace c_job_test {

using testing::CWorld;
using ::testing::ElementsAre;
using testing::failed;
using testing::ok;
using testing::SharedFolder;

int sum_over(lockstep_group group, int value) {
  EXPECT_TRUE(ok(lockstep_all_reduce(group, &value, 1, LOCKSTEP_INT32, LOCKSTEP_SUM, nullptr)));
  return value;
}
int sum_in_cpp(const ProcessGroup& group, int value) {
  comm::all_reduce(group, std::span(&value, 1));
  return value;
}
int sum_of_ranks(int size) { return size * (size - 1) / 2; }
int number_of(int (*function)(int*)) {
  int number = -1;
  EXPECT_TRUE(ok(function(&number)));
  return number;
}

RANKS_TEST(CJob, InitAndShutdownAgainAndAgain, Ranks(1, 2, 3, 4), Backends("shm", "tcp"), WithoutGroup()) {
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(lockstep_is_initialized(), 0);
    lockstep_init_options options = LOCKSTEP_INIT_OPTIONS;
    options.backend = backend_name().c_str();
    ASSERT_TRUE(ok(lockstep_init(&options)));
    EXPECT_EQ(lockstep_is_initialized(), 1);
    int mine = -1;
    int all = -1;
    const char* name = nullptr;
    EXPECT_TRUE(ok(lockstep_rank(LOCKSTEP_WORLD, &mine)));
    EXPECT_TRUE(ok(lockstep_size(LOCKSTEP_WORLD, &all)));
    EXPECT_EQ(mine, rank());
    EXPECT_EQ(all, size());
    EXPECT_EQ(number_of(lockstep_local_rank), rank());
    EXPECT_EQ(number_of(lockstep_local_size), size());
    EXPECT_EQ(number_of(lockstep_node_rank), 0);
    EXPECT_EQ(number_of(lockstep_node_count), 1);
    EXPECT_TRUE(ok(lockstep_group_backend(LOCKSTEP_WORLD, &name)));
    EXPECT_EQ(name, backend_name());
    EXPECT_TRUE(ok(lockstep_group_name(LOCKSTEP_WORLD, &name)));
    EXPECT_STREQ(name, "world");
    EXPECT_EQ(sum_over(LOCKSTEP_WORLD, rank()), sum_of_ranks(size()));
    EXPECT_TRUE(ok(lockstep_shutdown()));
  }
  EXPECT_TRUE(failed(LOCKSTEP_ERROR_NOT_INITIALIZED, lockstep_shutdown(), "no job"));
}

// C joins, C++ adds up, C++ makes a group, C adds up over it, C leaves.
RANKS_TEST(CJob, IsTheJobOfCpp, Ranks(1, 2, 3, 4), Backends("shm"), WithoutGroup()) {
  ASSERT_TRUE(ok(lockstep_init(nullptr)));
  EXPECT_TRUE(is_initialized());
  EXPECT_EQ(sum_in_cpp(lockstep::world(), rank()), sum_of_ranks(size()));
  EXPECT_EQ(sum_over(LOCKSTEP_WORLD, rank()), sum_of_ranks(size()));
  const ProcessGroup group = new_group();
  const lockstep_group handle = c::handle_of(group);
  EXPECT_EQ(sum_over(handle, rank()), sum_of_ranks(size()));
  EXPECT_TRUE(ok(lockstep_group_free(handle)));
  EXPECT_EQ(sum_in_cpp(group, rank()), sum_of_ranks(size()));  // it was lent
  EXPECT_EQ(sum_in_cpp(c::group_of(LOCKSTEP_WORLD), rank()), sum_of_ranks(size()));
  EXPECT_TRUE(ok(lockstep_shutdown()));
  EXPECT_FALSE(is_initialized());
}

RANKS_TEST(CJob, OverAStoreWithGivenRankAndSize, Ranks(1, 2, 3), WithoutGroup()) {
  const std::string path =
      str(std::filesystem::temp_directory_path().string(), "/lockstep-c-store-", *env("LOCKSTEP_JOB_ID"));
  lockstep_init_options options = LOCKSTEP_INIT_OPTIONS;
  ASSERT_TRUE(ok(lockstep_store_open_file(path.c_str(), &options.store)));
  options.rank = size() - 1 - rank();
  options.world_size = size();
  ASSERT_TRUE(ok(lockstep_init(&options)));
  EXPECT_TRUE(ok(lockstep_store_free(options.store)));
  int mine = -1;
  EXPECT_TRUE(ok(lockstep_rank(LOCKSTEP_WORLD, &mine)));
  EXPECT_EQ(mine, size() - 1 - rank());
  EXPECT_EQ(sum_over(LOCKSTEP_WORLD, mine), sum_of_ranks(size()));
  if (rank() == 0) std::filesystem::remove(path);
  EXPECT_TRUE(ok(lockstep_shutdown()));
}

RANKS_TEST(CGroups, ConnectOverAStoreThatRankZeroServes, Ranks(1, 2, 3), Backends("shm")) {
  const SharedFolder folder(world());
  const std::string file = folder / "secret";
  lockstep_store store = 0;
  int port = 0;
  if (rank() == 0) {
    std::ofstream(file) << Secret::random().as_hex();
    std::filesystem::permissions(file, std::filesystem::perms::owner_read);
    ASSERT_TRUE(ok(lockstep_store_serve(nullptr, 0, file.c_str(), &port, &store)));
  }
  EXPECT_TRUE(ok(lockstep_broadcast(LOCKSTEP_WORLD, &port, 1, LOCKSTEP_INT32, 0, nullptr)));
  if (rank() != 0) ASSERT_TRUE(ok(lockstep_store_connect("127.0.0.1", port, file.c_str(), 0, &store)));
  std::int64_t sum = 0;
  lockstep_objects value = 0;
  const void* bytes = nullptr;
  std::size_t count = 0;
  EXPECT_TRUE(ok(lockstep_store_add(store, "sum", 2, &sum)));
  EXPECT_GE(sum, 2);
  if (rank() == 0) EXPECT_TRUE(ok(lockstep_store_set(store, "key", "a\0b", 3)));
  EXPECT_TRUE(ok(lockstep_store_get(store, "key", 0, &value)));
  EXPECT_TRUE(ok(lockstep_objects_get(value, 0, &bytes, &count)));
  EXPECT_EQ(std::string(static_cast<const char*>(bytes), count), std::string("a\0b", 3));
  EXPECT_TRUE(ok(lockstep_objects_free(value)));

  lockstep_connect_options options = LOCKSTEP_CONNECT_OPTIONS;
  options.name = "reversed";
  options.backend = size() == 1 ? "self" : "tcp";
  lockstep_group group = 0;
  int mine = -1;
  ASSERT_TRUE(ok(lockstep_connect(store, size() - 1 - rank(), size(), &options, &group)));
  EXPECT_TRUE(ok(lockstep_rank(group, &mine)));
  EXPECT_EQ(mine, size() - 1 - rank());
  EXPECT_EQ(sum_over(group, rank()), sum_of_ranks(size()));
  EXPECT_TRUE(ok(lockstep_group_free(group)));
  EXPECT_TRUE(ok(lockstep_barrier(LOCKSTEP_WORLD, nullptr)));
  EXPECT_TRUE(ok(lockstep_store_free(store)));
}

RANKS_TEST(CGroups, RanksOfTheWorldAndOfTheGroup, Ranks(3, 4), Backends("shm", "tcp")) {
  const int ranks[] = {2, 1};  // in ascending order whatever the order here
  lockstep_group pair = 0;
  ASSERT_TRUE(ok(lockstep_new_group(ranks, 2, nullptr, &pair)));
  const bool is_member = rank() == 1 || rank() == 2;
  int mine = 0;
  int other = -1;
  std::vector<int> listed(2);
  EXPECT_TRUE(ok(lockstep_rank(pair, &mine)));
  EXPECT_EQ(mine, is_member ? rank() - 1 : -1);
  EXPECT_TRUE(ok(lockstep_group_ranks(pair, listed.data())));
  EXPECT_THAT(listed, ElementsAre(1, 2));
  EXPECT_TRUE(ok(lockstep_group_rank(pair, 2, &other)));
  EXPECT_EQ(other, 1);
  EXPECT_TRUE(ok(lockstep_global_rank(pair, 0, &other)));
  EXPECT_EQ(other, 1);
  EXPECT_TRUE(failed(LOCKSTEP_ERROR_INVALID_ARGUMENT, lockstep_group_rank(pair, 0, &other), "rank 0"));
  int value = rank();
  EXPECT_TRUE(ok(lockstep_broadcast(pair, &value, 1, LOCKSTEP_INT32, 2, nullptr)));  // of the world
  EXPECT_EQ(value, is_member ? 2 : rank());
  lockstep_work work = 0;
  EXPECT_TRUE(ok(lockstep_all_gatherv(pair, nullptr, nullptr,
                                      is_member ? std::vector<std::size_t>(2).data() : nullptr, LOCKSTEP_INT8,
                                      &work)));  // outside the group it does nothing
  EXPECT_TRUE(ok(lockstep_work_wait(work, 0)));
  EXPECT_TRUE(ok(lockstep_work_free(work)));
  EXPECT_TRUE(ok(lockstep_group_free(pair)));
  EXPECT_TRUE(ok(lockstep_barrier(LOCKSTEP_WORLD, nullptr)));
}

RANKS_TEST(CGroups, MembersAloneMakeAGroupAndAnotherBackendServesIt, Ranks(3), Backends("shm")) {
  lockstep_group_options options = LOCKSTEP_GROUP_OPTIONS;
  options.use_local_synchronization = 1;
  options.backend = "tcp";
  options.name = "pair";
  const int ranks[] = {0, 2};
  lockstep_group pair = 0;
  const char* backend = nullptr;
  if (rank() != 1) {
    ASSERT_TRUE(ok(lockstep_new_group(ranks, 2, &options, &pair)));
    EXPECT_TRUE(ok(lockstep_group_backend(pair, &backend)));
    EXPECT_STREQ(backend, "tcp");
    EXPECT_EQ(sum_over(pair, rank()), 2);
    EXPECT_TRUE(ok(lockstep_group_free(pair)));
  }
  EXPECT_TRUE(ok(lockstep_barrier(LOCKSTEP_WORLD, nullptr)));
}

// A list of byte strings, and its end.
std::vector<std::string> strings_of(lockstep_objects objects) {
  std::vector<std::string> strings;
  std::size_t count = 0;
  EXPECT_TRUE(ok(lockstep_objects_count(objects, &count)));
  for (std::size_t i = 0; i < count; ++i) {
    const void* bytes = nullptr;
    std::size_t length = 0;
    EXPECT_TRUE(ok(lockstep_objects_get(objects, i, &bytes, &length)));
    strings.emplace_back(static_cast<const char*>(bytes), length);
  }
  const void* none = nullptr;
  EXPECT_TRUE(failed(LOCKSTEP_ERROR_INVALID_ARGUMENT, lockstep_objects_get(objects, count, &none, &count),
                     "there is no object"));
  EXPECT_TRUE(ok(lockstep_objects_free(objects)));
  return strings;
}

// Rank r's has r bytes, of which one is zero.
std::string object_of(int rank) { return std::string(static_cast<std::size_t>(rank), '\0') + "x"; }

RANKS_TEST(CObjects, OfAnyLength, Ranks(1, 2, 3, 4), Backends("shm", "tcp")) {
  const CWorld c(world());
  const int root = size() - 1;
  const std::string mine = object_of(rank());
  std::vector<std::string> all;
  std::vector<const void*> pointers;
  std::vector<std::size_t> sizes;
  for (int r = 0; r < size(); ++r) all.push_back(object_of(r));
  for (const std::string& object : all) {
    pointers.push_back(object.data());
    sizes.push_back(object.size());
  }
  lockstep_objects objects = 0;
  EXPECT_TRUE(ok(lockstep_all_gather_object(c.handle(), mine.data(), mine.size(), &objects)));
  EXPECT_EQ(strings_of(objects), all);
  EXPECT_TRUE(ok(lockstep_gather_object(c.handle(), mine.data(), mine.size(), root, &objects)));
  EXPECT_EQ(strings_of(objects), rank() == root ? all : std::vector<std::string>());
  EXPECT_TRUE(ok(lockstep_broadcast_object(c.handle(), rank() == root ? mine.data() : nullptr, mine.size(),
                                           root, &objects)));
  EXPECT_THAT(strings_of(objects), ElementsAre(object_of(root)));
  EXPECT_TRUE(ok(lockstep_scatter_object(c.handle(), rank() == root ? pointers.data() : nullptr,
                                         rank() == root ? sizes.data() : nullptr, root, &objects)));
  EXPECT_THAT(strings_of(objects), ElementsAre(mine));
  EXPECT_TRUE(ok(lockstep_all_gather_object(c.handle(), nullptr, 0, &objects)));
  EXPECT_EQ(strings_of(objects), std::vector<std::string>(all.size()));
  if (rank() == 1) EXPECT_TRUE(ok(lockstep_send_object(c.handle(), mine.data(), mine.size(), 0, 3)));
  if (rank() == 0 && size() > 1) {
    int from = -1;
    EXPECT_TRUE(ok(lockstep_recv_object(c.handle(), LOCKSTEP_ANY_SOURCE, 3, &from, &objects)));
    EXPECT_EQ(from, 1);
    EXPECT_THAT(strings_of(objects), ElementsAre(object_of(1)));
  }
}

RANKS_TEST(CMemory, SharedMemoryIsUsedInPlace, Ranks(1, 2, 3, 4), Backends("thread", "shm", "tcp")) {
  const CWorld c(world());
  constexpr std::size_t COUNT = 100003;
  for (int round = 0; round < 3; ++round) {
    void* memory = nullptr;
    ASSERT_TRUE(ok(lockstep_allocate_shared(c.handle(), COUNT * sizeof(float), &memory)));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 64, 0U);
    const std::span<float> x(static_cast<float*>(memory), COUNT);
    EXPECT_EQ(x[COUNT - 1], 0);
    for (std::size_t i = 0; i < COUNT; ++i) x[i] = static_cast<float>(i % 100) + static_cast<float>(rank());
    EXPECT_TRUE(ok(lockstep_all_reduce(c.handle(), memory, COUNT, LOCKSTEP_FLOAT32, LOCKSTEP_SUM, nullptr)));
    for (std::size_t i = 0; i < COUNT; ++i)
      ASSERT_EQ(x[i], static_cast<float>(size()) * static_cast<float>(i % 100) +
                          static_cast<float>(sum_of_ranks(size())));
    EXPECT_TRUE(ok(lockstep_free_shared(memory)));
  }
}

RANKS_TEST(CMemory, CommonMemoryIsOnePieceWhereThereIsAny, Ranks(1, 2, 3), Backends("thread", "shm", "tcp")) {
  const CWorld c(world());
  void* memory = nullptr;
  ASSERT_TRUE(ok(lockstep_allocate_common(c.handle(), 64, &memory)));
  ASSERT_EQ(memory == nullptr, backend_name() == "tcp");
  if (memory == nullptr) return;
  auto* const numbers = static_cast<int*>(memory);
  numbers[rank()] = rank() + 1;
  EXPECT_TRUE(ok(lockstep_barrier(c.handle(), nullptr)));
  for (int r = 0; r < size(); ++r) EXPECT_EQ(numbers[r], r + 1);
  EXPECT_TRUE(ok(lockstep_free_shared(memory)));
}

}  // namespace c_job_test
}  // namespace lockstep
