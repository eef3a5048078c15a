// What is special about the hierarchical backends; every other test over them is among those of all backends.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/collectives.h"
#include "lockstep/job/groups.h"
#include "testing/buffers.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

// What carries the messages: "hierarchical+gloo" is over "gloo".
std::string carrier_of(const std::string& backend) {
  const std::size_t plus = backend.find('+');
  return plus == std::string::npos ? "tcp" : backend.substr(plus + 1);
}

void is_a_group_over(const ProcessGroup& group, const std::string& backend) {
  EXPECT_EQ(group.backend_name(), backend) << group.name();
  int x = group.rank();
  comm::all_reduce(group, std::span(&x, 1));
  EXPECT_EQ(x, group.size() * (group.size() - 1) / 2);
}

// Ranks 0 and 1 are on one node, 2 and 3 on another.
RANKS_TEST(Hierarchical, AGroupIsNamedAfterWhatItsRanksShare, Ranks(4),
           Backends("hierarchical", "hierarchical+gloo", "hierarchical+mpi")) {
  is_a_group_over(world(), backend_name());
  is_a_group_over(split_group(world(), rank() / 2), "shm");
  is_a_group_over(split_group(world(), rank() % 2), carrier_of(backend_name()));
  const ProcessGroup most = split_group(world(), rank() == 3 ? -1 : 0, -rank());
  if (most.is_member()) is_a_group_over(most, backend_name());
}

RANKS_TEST(Hierarchical, AlikeNodesGiveTheGroupOfSharedMemoryOrOfMessagesAlone, Ranks(4),
           Backends("hierarchical", "hierarchical+gloo", "hierarchical+mpi")) {
  setenv("LOCKSTEP_NODE", "the same", 1);  // NOLINT(concurrency-mt-unsafe)
  rejoin();
  is_a_group_over(world(), "shm");
  setenv("LOCKSTEP_NODE", str("of rank ", rank()).c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
  rejoin();
  is_a_group_over(world(), carrier_of(backend_name()));
}

template <typename T>
void check_sums_of_halves(const ProcessGroup& group, ReduceOp op, Memory memory, std::size_t count) {
  SCOPED_TRACE(str(name_of(op), " of ", name_of(dtype_of<T>()), ", ", count, " elements"));
  const auto all = [&](std::size_t i) {
    return reference::combine<T>(op, samples_of_all<T>(group.size(), i, count));
  };
  const Buffer<T> x(group, memory, count);
  x.fill([&](std::size_t i) { return reference::sample<T>(group.rank(), i, count); });
  const auto ranks = static_cast<std::size_t>(group.size());
  const Buffer<T> parts(group, memory, count * ranks);  // all the same
  for (std::size_t r = 0; r < ranks; ++r)
    std::copy(x.span().begin(), x.span().end(),
              parts.span().begin() + static_cast<std::ptrdiff_t>(r * count));
  comm::all_reduce(group, x.span(), op);
  EXPECT_EQ(x.difference(all), "");
  const Buffer<T> mine(group, memory, count);
  comm::reduce_scatter(group, mine.span(), std::span<const T>(parts.span()), op);
  EXPECT_EQ(mine.difference(all), "");
}

// Of nodes with four ranks each: what travels between them is not rounded.
RANKS_TEST(Hierarchical, SumsOfHalfPrecisionAreRoundedOnce, Ranks(8),
           Backends("hierarchical", "hierarchical+gloo")) {
  for (const Memory memory : {Memory::SHARED, Memory::PRIVATE_ODD}) {
    for (const std::size_t count : {1U, 65U, 1000U, 100003U}) {
      for (const ReduceOp op : {ReduceOp::SUM, ReduceOp::AVG, ReduceOp::PRODUCT, ReduceOp::MAX}) {
        check_sums_of_halves<Float16>(world(), op, memory, count);
        check_sums_of_halves<BFloat16>(world(), op, memory, count);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
