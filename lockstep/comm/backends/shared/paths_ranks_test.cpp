// Each way through shared memory, forced for every size, gives the bits that the definition of the reduction
// says; and so all of them give the same.
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/collectives.h"
#include "testing/buffers.h"
#include "testing/ranks.h"
#include "testing/reference.h"

namespace lockstep {
namespace {

using reference::combine;
using reference::sample;

template <typename T> struct PathCall {
  Buffer<T> x;
  std::uint64_t seed;
  ReduceOp op;

  PathCall(const ProcessGroup& group, Memory memory, std::size_t count, ReduceOp op_)
      : x(group, memory, count), seed(count + static_cast<std::uint64_t>(op_)), op(op_) {
    x.fill([&](std::size_t i) { return sample<T>(group.rank(), i, seed); });
  }
  void check(const ProcessGroup& group) const {
    EXPECT_EQ(
        x.difference([&](std::size_t i) { return combine<T>(op, samples_of_all<T>(group.size(), i, seed)); }),
        "")
        << name_of(op) << " of " << name_of(dtype_of<T>());
  }
};

template <typename T>
void all_reduce_once(const ProcessGroup& group, Memory memory, std::size_t count, ReduceOp op) {
  SCOPED_TRACE(str(count, " elements, ", MEMORY_NAMES[static_cast<int>(memory)]));
  const PathCall<T> call(group, memory, count, op);
  comm::all_reduce(group, call.x.span(), op);
  call.check(group);
}

// Around the borders of the line, of pieces and portions, and of chunks that come round in the window (4 of a
// megabyte for 2 ranks).
void sizes(const ProcessGroup& group) {
  for (const std::size_t count :
       {0UL, 1UL, 9UL, 17UL, 18UL, 19UL, 4095UL, 4096UL, 4097UL, 131072UL, 262145UL})
    for (const Memory memory : MEMORIES) all_reduce_once<float>(group, memory, count, ReduceOp::AVG);
  all_reduce_once<double>(group, Memory::PRIVATE_ODD, reference::THOROUGH ? 2500003 : 600011, ReduceOp::SUM);
}

void dtypes(const ProcessGroup& group) {
  reference::for_each_dtype([&]<typename T>() {
    for (const ReduceOp op : reference::OPS) {
      if (reference::is_refused<T>(op)) continue;
      for (const std::size_t count : {5UL, 1003UL}) all_reduce_once<T>(group, Memory::PRIVATE, count, op);
    }
  });
}

// Some ranks wait and some do not, some have shared memory and some have not: they still find one way
// together.
void mixtures(const ProcessGroup& group) {
  for (const std::size_t count : {3UL, 500UL, 70001UL, 400009UL}) {
    for (int kind = 0; kind < 8; ++kind) {
      SCOPED_TRACE(str(count, " elements, mixture ", kind));
      const bool waits = ((kind + group.rank()) & 1) == 0;
      const bool shared = (kind >> ((group.rank() + 1) % 3) & 1) != 0;
      const PathCall<float> call(group, shared ? Memory::SHARED : Memory::PRIVATE, count, ReduceOp::SUM);
      const PathCall<float> later(group, Memory::PRIVATE, count, ReduceOp::MAX);
      Work work = comm::all_reduce(group, call.x.span(), call.op, /*async_op=*/!waits);
      comm::all_reduce(group, later.x.span(), later.op);
      work.wait();
      call.check(group);
      later.check(group);
    }
  }
}

void everything(const ProcessGroup& group) {
  sizes(group);
  dtypes(group);
  mixtures(group);
}

RANKS_TEST(Path, Inline, Ranks(1, 2, 3, 4), Backends("thread", "shm"), Variable("LOCKSTEP_PATHS", "inline")) {
  everything(world());
}
RANKS_TEST(Path, OneShot, Ranks(1, 2, 3, 4), Backends("thread", "shm"),
           Variable("LOCKSTEP_PATHS", "one_shot")) {
  everything(world());
}
RANKS_TEST(Path, TwoShot, Ranks(1, 2, 3, 4), Backends("thread", "shm"),
           Variable("LOCKSTEP_PATHS", "two_shot")) {
  everything(world());
}
RANKS_TEST(Path, Window, Ranks(1, 2, 3, 4), Backends("thread", "shm"), Variable("LOCKSTEP_PATHS", "window")) {
  everything(world());
}
RANKS_TEST(Path, Staged, Ranks(1, 2, 3, 4), Backends("thread", "shm"), Variable("LOCKSTEP_PATHS", "staged")) {
  everything(world());
}
RANKS_TEST(Path, AsItShips, Ranks(1, 2, 3, 4), EveryBackend(), Except("nccl")) { everything(world()); }

// A rank has one window: the call of a second thread does without. Both call the same, so their order does
// not matter.
RANKS_TEST(Path, WindowOfTwoThreads, Ranks(2, 3), Backends("thread", "shm"),
           Variable("LOCKSTEP_PATHS", "window")) {
  const auto call_often = [&] {
    for (int round = 0; round < (reference::THOROUGH ? 20 : 5); ++round)
      all_reduce_once<float>(world(), Memory::PRIVATE, 1000003, ReduceOp::SUM);
  };
  std::thread other(call_often);
  call_often();
  other.join();
}

// Parts and whole groups at a time, by ways that use the window and the blocks of one rank in several groups.
RANKS_TEST(Path, GroupsSideBySide, Ranks(4), Backends("thread", "shm"),
           Variable("LOCKSTEP_PATHS", "window")) {
  const int other = rank() ^ 1;
  const auto pair = world().backend().split({{0, 1}, {2, 3}}, "pairs", {});
  const ProcessGroup pairs(pair, rank() < other ? std::vector{rank(), other} : std::vector{other, rank()});
  for (const std::size_t count : {1000UL, 300007UL}) {
    const PathCall<float> in_world(world(), Memory::PRIVATE, count, ReduceOp::SUM);
    Work work = comm::all_reduce(world(), in_world.x.span(), in_world.op, /*async_op=*/true);
    all_reduce_once<float>(pairs, Memory::PRIVATE, count, ReduceOp::SUM);
    work.wait();
    in_world.check(world());
    all_reduce_once<float>(world(), Memory::PRIVATE, count, ReduceOp::SUM);
  }
  pairs.close();
}

}  // namespace
}  // namespace lockstep
