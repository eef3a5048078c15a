#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/job/groups.h"
#include "lockstep/tensor/collectives.h"
#include "lockstep/tensor/functional.h"
#include "testing/ranks.h"

// Groups of some ranks: src and dst are ranks of the whole job, as in torch, unless written as GroupRank.
namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

at::Tensor of_rank(int rank) { return at::full({2}, rank, at::kDouble); }

RANKS_TEST(TensorSubgroup, RootsAreGlobalRanks, Ranks(3, 4), Backends("shm", "tcp", "gloo")) {
  const ProcessGroup group = new_group({0, 2});
  const at::Tensor by_global = of_rank(rank());
  const at::Tensor by_group = of_rank(rank());
  broadcast(by_global, 2, group);
  broadcast(by_group, GroupRank{1}, group);
  EXPECT_TRUE(by_global.equal(of_rank(group.is_member() ? 2 : rank())));
  EXPECT_TRUE(by_group.equal(of_rank(group.is_member() ? 2 : rank())));

  const at::Tensor sum = of_rank(rank() + 1);
  reduce(sum, 2, ReduceOp::SUM, group);
  EXPECT_TRUE(sum.equal(of_rank(rank() == 2 ? 1 + 3 : rank() + 1)));

  std::vector<at::Tensor> list;
  if (rank() == 2) list = {at::zeros({2}, at::kDouble), at::zeros({2}, at::kDouble)};
  gather(of_rank(rank()), list, 2, group);
  if (rank() == 2) EXPECT_TRUE(list[0].equal(of_rank(0)) && list[1].equal(of_rank(2)));
  if (group.is_member()) {
    EXPECT_THAT([&] { broadcast(by_global, 1, group); },
                ThrowsMessage<InvalidArgument>(
                    HasSubstr("src 1 is not a rank of the group, whose global ranks are 0, 2")));
  }
}

RANKS_TEST(TensorSubgroup, AMessagesSourceIsAGlobalRank, Ranks(3, 4), Backends("shm", "tcp", "gloo")) {
  const ProcessGroup group = new_group({0, 2});
  const at::Tensor x = of_rank(rank());
  if (rank() == 2) {
    send(x, 0, group);
    isend(x, GroupRank{0}, group).wait();
  }
  if (rank() == 0) {
    EXPECT_EQ(recv(x, std::nullopt, group), 2);
    EXPECT_TRUE(x.equal(of_rank(2)));
    EXPECT_EQ(recv(x, 2, group), 2);
  }
  if (rank() == 1) EXPECT_EQ(recv(x, 0, group), -1);
}

// Rank r of the job is in the group of r / 2; both groups work at the same time, gradients too.
RANKS_TEST(TensorSubgroup, SeveralGroupsAndGradients, Ranks(2, 4), Backends("shm", "tcp", "gloo")) {
  const ProcessGroup mine = new_subgroups(2).mine;
  const int first = rank() / 2 * 2;
  const at::Tensor x = of_rank(rank()).set_requires_grad(true);
  const at::Tensor y = functional::broadcast(functional::all_reduce(x, ReduceOp::SUM, mine), first + 1, mine);
  EXPECT_TRUE(y.equal(of_rank(first + first + 1)));
  (y * (rank() + 1)).sum().backward();
  EXPECT_TRUE(x.grad().equal(of_rank(first + 1 + first + 2)));
}

}  // namespace
}  // namespace lockstep
