// What lies in memory of the group is lent to the others instead of copied: it is not given back before they
// have taken it, and not lent where this rank's own result is written over it.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "lockstep/comm/collectives/collectives.h"
#include "lockstep/os/process.h"
#include "testing/ranks.h"
#include "testing/repeated.h"
#include "testing/signs.h"

namespace lockstep {
namespace {

constexpr std::size_t LENT_COUNT =
    300007;  // of each part: well beyond what goes into a line or a small block

Repeated<float> all_equal(float value) {
  return {1000, [value](std::size_t) { return value; }};
}
std::size_t different_from(std::span<const float> x, float value) { return all_equal(value).different(x); }

class Floats {
 public:
  Floats(const ProcessGroup& group, std::size_t parts)
      : memory_(group.allocate_shared(parts * LENT_COUNT * sizeof(float))),
        all_(static_cast<float*>(memory_.get()), parts * LENT_COUNT) {}
  std::span<float> all() const { return all_; }
  std::span<float> part(int index) const {
    return all_.subspan(static_cast<std::size_t>(index) * LENT_COUNT, LENT_COUNT);
  }
  void fill_part(int index, float value) const { all_equal(value).write(part(index)); }

 private:
  std::shared_ptr<void> memory_;
  std::span<float> all_;
};

RANKS_TEST(LentMemory, IsTheCallersAgainWhenTheCallReturns, Ranks(1, 2, 3, 4), EveryBackend()) {
  const Floats x(world(), 1);
  std::vector<float> y(LENT_COUNT);
  for (int round = 0; round < 20; ++round) {
    const int root = round % size();
    const auto value = static_cast<float>(round + 1);
    if (rank() == root) {
      x.fill_part(0, value);
      comm::broadcast(world(), x.all(), root);
      x.fill_part(0, -1);
    } else {
      comm::broadcast(world(), std::span(y), root);
      EXPECT_EQ(different_from(y, value), 0U);
    }
  }
}

// What rank 1 has read when it leaves in the middle of a call is its owner's again, too. Nothing but the
// leaving tells rank 0 of it: rank 2 comes when rank 1 has gone, and rank 0 looks when rank 2 has come.
RANKS_TEST(LentMemory, IsTheCallersAgainWhenAReaderHasLeft, Ranks(3), Backends("thread", "shm")) {
  const testing::Signs signs(world());
  const Floats x(world(), 1);
  x.fill_part(0, static_cast<float>(rank() + 1));
  const std::vector<float> own(LENT_COUNT, 2);
  std::vector<float> y(3 * LENT_COUNT);
  comm::barrier(world());
  if (rank() == 1) {
    Work work = comm::all_gather(world(), std::span(own), std::span(y), /*async_op=*/true);
    while (y[LENT_COUNT - 1] != 1) ASSERT_FALSE(work.is_completed());
    world().close();
    return signs.give("left");
  }
  if (rank() == 2) signs.await("left");
  Work work = comm::all_gather(world(), std::span<const float>(x.all()), std::span(y), /*async_op=*/true);
  if (rank() == 2) signs.give("came");
  if (rank() == 0) signs.await("came");
  work.wait();
  x.fill_part(0, -1);
  for (std::size_t r = 0; r < 3; ++r) {
    const auto part = std::span(y).subspan(r * LENT_COUNT, LENT_COUNT);
    EXPECT_EQ(different_from(part, static_cast<float>(r + 1)), 0U) << r;
  }
}

RANKS_TEST(LentMemory, BroadcastWhereAllBuffersAreShared, Ranks(1, 2, 3, 4), EveryBackend()) {
  const Floats x(world(), 1);
  for (int round = 0; round < 20; ++round) {
    const int root = round % size();
    x.fill_part(0, static_cast<float>(rank() == root ? round + 1 : -1));
    Work work = comm::broadcast(world(), x.all(), root, /*async_op=*/round % 3 == 0);
    work.wait();
    EXPECT_EQ(different_from(x.all(), static_cast<float>(round + 1)), 0U);
  }
}

// The result goes over the part that another rank reads.
RANKS_TEST(LentMemory, ReduceScatterIntoAnothersPart, Ranks(2, 3, 4), EveryBackend()) {
  const Floats x(world(), static_cast<std::size_t>(size()));
  for (int shift = 0; shift < size(); ++shift) {
    for (int r = 0; r < size(); ++r) x.fill_part(r, static_cast<float>(10 * rank() + r));
    const std::span<const float> given = x.all();
    comm::reduce_scatter(world(), x.part((rank() + shift) % size()), given);
    const int others = size() * (size() - 1) / 2;
    EXPECT_EQ(
        different_from(x.part((rank() + shift) % size()), static_cast<float>(10 * others + size() * rank())),
        0U);
  }
}

// More than goes in one step over messages.
RANKS_TEST(LentMemory, LargeReduceScatterIntoTheInputs, Ranks(2, 3, 4), EveryBackend()) {
  const std::size_t count = 1300007;
  const auto parts = static_cast<std::size_t>(size());
  std::vector<float> x(parts * count);
  const auto mine = static_cast<std::size_t>(rank());
  Repeated<float>(1000, [&](std::size_t i) { return mine + i; }).write(x);
  comm::reduce_scatter(world(), std::span(x).first(count), std::span<const float>(x));
  const Repeated<float> sums(
      1000, [&](std::size_t i) { return parts * (parts - 1) / 2 + parts * ((mine * count + i) % 1000); });
  EXPECT_EQ(sums.different(std::span(x).first(count)), 0U);
}

// And anywhere else in the inputs, also partly over the rank's own part, in any memory.
void reduce_scatter_at_every_shift(const ProcessGroup& group, std::span<float> x) {
  const auto parts = static_cast<std::size_t>(group.size());
  const auto rank = static_cast<std::size_t>(group.rank());
  for (const std::size_t place : {std::size_t{0}, LENT_COUNT / 3, rank * LENT_COUNT, rank * LENT_COUNT + 1,
                                  parts * LENT_COUNT - LENT_COUNT}) {
    const std::size_t begin = std::min(place, (parts - 1) * LENT_COUNT);
    Repeated<float>(1000, [&](std::size_t i) { return rank + i; }).write(x);
    const std::span<float> output = x.subspan(begin, LENT_COUNT);
    comm::reduce_scatter(group, output, std::span<const float>(x));
    const Repeated<float> sums(1000, [&](std::size_t i) {
      return parts * (parts - 1) / 2 + parts * ((rank * LENT_COUNT + i) % 1000);
    });
    EXPECT_EQ(sums.different(output), 0U) << "output at " << begin;
  }
}

RANKS_TEST(LentMemory, ReduceScatterIntoAnyPlaceOfTheInputs, Ranks(1, 2, 3, 4), EveryBackend()) {
  const Floats x(world(), static_cast<std::size_t>(size()));
  reduce_scatter_at_every_shift(world(), x.all());
  std::vector<float> y(x.all().size());
  reduce_scatter_at_every_shift(world(), y);
}

// Messages that are lent, and of sizes that are not, in both kinds of memory. The buffer is the sender's
// again when send returns.
void pass_messages(const ProcessGroup& group, std::span<float> x) {
  for (const std::size_t count : {std::size_t{16384}, std::size_t{200001}, std::size_t{400000}, x.size()}) {
    const std::span<float> part = x.first(count);
    const Repeated<float> message(1000, [&](std::size_t i) { return i + count % 7; });
    if (group.rank() == 0) {
      message.write(part);
      comm::send(group, std::span<const float>(part), 1);
      all_equal(-1).write(part);
    } else if (group.rank() == 1) {
      all_equal(-2).write(part);
      comm::recv(group, part, 0);
      EXPECT_EQ(message.different(part), 0U) << count;
    }
  }
}

RANKS_TEST(LentMemory, LargeMessages, Ranks(2, 3), EveryBackend()) {
  const Floats x(world(), 20);  // 24 MB
  std::vector<float> y(x.all().size());
  for (int round = 0; round < 3; ++round) {
    pass_messages(world(), x.all());
    pass_messages(world(), y);
  }
  comm::barrier(world());
}

// Nobody comes: both send before they receive. And the one that was sent last is asked for first.
RANKS_TEST(LentMemory, AMessageDoesNotWaitForItsReceiver, Ranks(2), Backends("thread", "shm")) {
  const Floats shared(world(), 20);
  std::vector<float> own(shared.all().size());
  for (const std::span<float> x : {shared.all(), std::span(own)}) {
    std::vector<float> small(100, 7.0F);
    std::vector<float> received(x.size());
    all_equal(static_cast<float>(rank() + 1)).write(x);
    comm::send(world(), std::span<const float>(x), 1 - rank(), /*tag=*/1);
    comm::send(world(), std::span<const float>(small), 1 - rank(), /*tag=*/2);
    comm::recv(world(), std::span(small), 1 - rank(), /*tag=*/2);
    EXPECT_EQ(comm::recv(world(), std::span(received), ANY_SOURCE, /*tag=*/1), 1 - rank());
    EXPECT_EQ(different_from(received, static_cast<float>(2 - rank())), 0U);
  }
}

// From now on the kernel refuses this process to read others' memory, as a container's filter may.
bool forbid_reading_peers() {
  sock_filter rules[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                         BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
                         BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                         BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{static_cast<unsigned short>(std::size(rules)), rules};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

RANKS_TEST(LentMemory, WhoMayNotReadIsGivenACopy, Ranks(2), Backends("shm")) {
  std::vector<float> x(20 * LENT_COUNT);
  pass_messages(world(), x);
  if (rank() == 1) {
    ASSERT_TRUE(forbid_reading_peers());
    iovec nothing{x.data(), 1};
    EXPECT_EQ(process_vm_readv(current_pid(), &nothing, 1, &nothing, 1, 0), -1);
  }
  pass_messages(world(), x);
  comm::barrier(world());
}

RANKS_TEST(LentMemory, AllGatherInPlace, Ranks(1, 2, 3, 4), EveryBackend()) {
  const Floats x(world(), static_cast<std::size_t>(size()));
  for (int round = 0; round < 5; ++round) {
    x.fill_part(rank(), static_cast<float>(10 * round + rank()));
    const std::span<const float> given = x.part(rank());
    comm::all_gather(world(), given, x.all());
    for (int r = 0; r < size(); ++r)
      EXPECT_EQ(different_from(x.part(r), static_cast<float>(10 * round + r)), 0U);
  }
}

RANKS_TEST(LentMemory, AllToAllFromSharedMemory, Ranks(1, 2, 3, 4), EveryBackend()) {
  const Floats x(world(), static_cast<std::size_t>(size()));
  std::vector<float> y(static_cast<std::size_t>(size()) * LENT_COUNT);
  for (int round = 0; round < 5; ++round) {
    for (int r = 0; r < size(); ++r) x.fill_part(r, static_cast<float>(100 * round + 10 * rank() + r));
    const std::span<const float> given = x.all();
    comm::all_to_all(world(), given, std::span(y));
    for (int r = 0; r < size(); ++r) x.fill_part(r, -1);
    for (int r = 0; r < size(); ++r) {
      const std::span got(y.data() + static_cast<std::size_t>(r) * LENT_COUNT, LENT_COUNT);
      EXPECT_EQ(different_from(got, static_cast<float>(100 * round + 10 * r + rank())), 0U);
    }
  }
}

// Large private memory of ranks that all wait passes through windows. When one of them does not wait, or has
// its own in the group's memory, it is copied aside.
constexpr std::size_t LARGE = 3300001;

Repeated<float> gathered(std::size_t rank) {
  return {997, [rank](std::size_t i) { return 1000 * rank + i; }};
}

void check_gathered(const ProcessGroup& group, std::span<const float> all) {
  for (std::size_t r = 0; r < static_cast<std::size_t>(group.size()); ++r)
    EXPECT_EQ(gathered(r).different(all.subspan(r * LARGE, LARGE)), 0U) << r;
}

void all_gather_from(const ProcessGroup& group, std::span<float> mine, std::span<float> all, bool async_op) {
  gathered(static_cast<std::size_t>(group.rank())).write(mine.first(LARGE));
  Work work = comm::all_gather(group, std::span<const float>(mine), all, async_op);
  if (async_op) work.wait();
  if (mine.data() < all.data() || mine.data() >= all.data() + all.size()) all_equal(-1).write(mine);
  check_gathered(group, all);
}

RANKS_TEST(LentMemory, AllGatherOfLargePrivateMemory, Ranks(1, 2, 3, 4), EveryBackend()) {
  std::vector<float> mine(LARGE);
  std::vector<float> all(static_cast<std::size_t>(size()) * LARGE);
  const auto memory = world().allocate_shared(LARGE * sizeof(float));
  const std::span shared(static_cast<float*>(memory.get()), LARGE);
  all_gather_from(world(), mine, all, /*async_op=*/false);
  all_gather_from(world(), mine, all, /*async_op=*/rank() == 0);
  all_gather_from(world(), rank() == size() - 1 ? shared : std::span(mine), all, /*async_op=*/false);
  all_gather_from(world(), std::span(all).subspan(static_cast<std::size_t>(rank()) * LARGE, LARGE), all,
                  /*async_op=*/false);
}

RANKS_TEST(LentMemory, AllToAllOfLargePrivateMemory, Ranks(2, 3), EveryBackend()) {
  const auto ranks = static_cast<std::size_t>(size());
  std::vector<float> inputs(ranks * LARGE);
  std::vector<float> outputs(ranks * LARGE);
  for (const int async_rank : {-1, 0}) {
    for (std::size_t r = 0; r < ranks; ++r)
      gathered(static_cast<std::size_t>(rank())).write(std::span(inputs).subspan(r * LARGE, LARGE));
    Work work =
        comm::all_to_all(world(), std::span<const float>(inputs), std::span(outputs), rank() == async_rank);
    if (rank() == async_rank) work.wait();
    all_equal(-1).write(inputs);
    check_gathered(world(), outputs);
  }
}

RANKS_TEST(LentMemory, ReduceScatterOfLargePrivateMemory, Ranks(2, 3), EveryBackend()) {
  const auto ranks = static_cast<std::size_t>(size());
  std::vector<float> inputs(ranks * LARGE);
  std::vector<float> output(LARGE);
  for (const int async_rank : {-1, 0}) {
    for (std::size_t r = 0; r < ranks; ++r)
      gathered(static_cast<std::size_t>(rank())).write(std::span(inputs).subspan(r * LARGE, LARGE));
    Work work = comm::reduce_scatter(world(), std::span(output), std::span<const float>(inputs),
                                     ReduceOp::SUM, rank() == async_rank);
    if (rank() == async_rank) work.wait();
    all_equal(-1).write(inputs);
    const Repeated<float> sums(997,
                               [&](std::size_t i) { return 1000 * (ranks * (ranks - 1) / 2) + ranks * i; });
    EXPECT_EQ(sums.different(output), 0U);
  }
}

}  // namespace
}  // namespace lockstep
