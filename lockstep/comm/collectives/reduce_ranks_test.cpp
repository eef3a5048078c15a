#include "lockstep/comm/collectives/reduce.h"

#include "lockstep/base/error.h"
#include "testing/buffers.h"
#include "testing/lacking.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using reference::combine;
using reference::is_refused;
using reference::sample;

template <typename T> struct ReduceCase {
  ReduceOp op;
  Memory memory;
  std::size_t count;
  int root;
};

// The root has the combination, and the other ranks their old data.
template <typename T> void check_reduce(const ProcessGroup& group, const ReduceCase<T>& c) {
  SCOPED_TRACE(str(name_of(c.op), " of ", name_of(dtype_of<T>()), ", ", c.count, " elements to rank ", c.root,
                   ", ", MEMORY_NAMES[static_cast<int>(c.memory)]));
  const Buffer<T> x(group, c.memory, c.count);
  const auto mine = [&](std::size_t i) { return sample<T>(group.rank(), i, c.count); };
  x.fill(mine);
  if (is_lacking(group, dtype_of<T>(), c.op))
    return expect_lacking([&] { comm::reduce(group, x.span(), c.root, c.op); });
  comm::reduce(group, x.span(), c.root, c.op);
  EXPECT_EQ(x.difference([&](std::size_t i) {
    return group.rank() == c.root ? combine<T>(c.op, samples_of_all<T>(group.size(), i, c.count)) : mine(i);
  }),
            "");
}

RANKS_TEST(Reduce, EveryDtypeOperatorMemoryAndRoot, Ranks(1, 2, 3, 4), EveryBackend()) {
  reference::for_each_dtype([&]<typename T>() {
    for (const ReduceOp op : reference::OPS) {
      if (is_refused<T>(op)) continue;
      for (const Memory memory : MEMORIES) {
        for (const std::size_t count : {0, 1, 65, 513}) {
          for (int root = 0; root < size(); ++root) check_reduce<T>(world(), {op, memory, count, root});
        }
      }
    }
  });
}

RANKS_TEST(Reduce, ManySlices, Ranks(2, 3, 4), EveryBackend()) {
  for (const Memory memory : MEMORIES) {
    check_reduce<float>(world(), {ReduceOp::SUM, memory, 300007, size() - 1});
    check_reduce<BFloat16>(world(), {ReduceOp::AVG, memory, 300007, 0});
  }
}

// The ranks' data may be in different kinds of memory.
RANKS_TEST(Reduce, RanksMayUseDifferentMemory, Ranks(2, 3, 4), EveryBackend()) {
  for (std::size_t shift = 0; shift < 4; ++shift) {
    const Memory mine = MEMORIES[(static_cast<std::size_t>(rank()) + shift) % 4];
    check_reduce<double>(world(), {ReduceOp::SUM, mine, 100003, static_cast<int>(shift) % size()});
  }
}

}  // namespace
}  // namespace lockstep
