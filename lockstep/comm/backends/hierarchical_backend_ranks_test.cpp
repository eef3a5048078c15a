// What is special about the hierarchical backends; every other test over them is among those of all backends.
#include <gmock/gmock.h>

#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/str.h"
#include "lockstep/comm/collectives.h"
#include "lockstep/job/groups.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

// What carries the messages: "hierarchical+gloo" is over "gloo".
std::string engine_of(const std::string& backend) {
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
  is_a_group_over(split_group(world(), rank() % 2), engine_of(backend_name()));
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
  is_a_group_over(world(), engine_of(backend_name()));
}

}  // namespace
}  // namespace lockstep
