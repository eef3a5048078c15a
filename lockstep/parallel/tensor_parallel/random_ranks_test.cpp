#include "lockstep/parallel/tensor_parallel/random.h"

#include <ATen/ATen.h>

#include <vector>

#include "lockstep/autograd/activation_checkpoint.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/tensor/collectives.h"
#include "lockstep/tensor/random_state.h"
#include "testing/ranks.h"

namespace lockstep::tensor_parallel {
namespace model_parallel_random {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::vector<at::Tensor> of_all(const at::Tensor& tensor, const ProcessGroup& group) {
  std::vector<at::Tensor> all;
  for (int r = 0; r < group.size(); ++r) all.push_back(at::empty_like(tensor));
  all_gather(all, tensor, group);
  return all;
}

// Outside of a fork all ranks draw alike, before and behind it. Within it no two do, nor in nested ones.
RANKS_TEST(ModelParallelRandom, ForksDrawApart, Ranks(1, 2, 3, 4)) {
  model_parallel_manual_seed(7, world());
  const at::Tensor before = at::rand({4});
  at::Tensor within, nested, within_again;
  {
    const ForkedRandom forked(world());
    within = at::rand({4});
    {
      const ForkedRandom inner(world());
      nested = at::rand({4});
    }
    within_again = at::rand({4});
  }
  const at::Tensor after = at::rand({4});
  EXPECT_FALSE(after.equal(before));
  for (const at::Tensor& tensor : {before, after})
    for (const at::Tensor& other : of_all(tensor, world())) EXPECT_TRUE(other.equal(tensor));
  std::vector<at::Tensor> apart = {before, after};
  for (const at::Tensor& tensor : {within, nested, within_again})
    for (const at::Tensor& other : of_all(tensor, world())) apart.push_back(other);
  for (std::size_t i = 0; i < apart.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) EXPECT_FALSE(apart[i].equal(apart[j])) << i << " and " << j;

  // the same seed gives the same again
  model_parallel_manual_seed(7, world());
  EXPECT_TRUE(at::rand({4}).equal(before));
  {
    const ForkedRandom forked(world());
    EXPECT_TRUE(at::rand({4}).equal(within));
  }
}

// One state is all there is: what sets it back repeats the forks.
RANKS_TEST(ModelParallelRandom, ForksAreRepeatedByTheGeneratorsState, Ranks(1, 2)) {
  model_parallel_manual_seed(7, world());
  const auto forked_dropout = [&](const at::Tensor& x) {
    const ForkedRandom forked(world());
    return at::dropout(x, 0.5, true);
  };
  const at::Tensor state = get_rng_state();
  const at::Tensor first = forked_dropout(at::ones({100}));
  set_rng_state(state);
  EXPECT_TRUE(forked_dropout(at::ones({100})).equal(first));

  // in backward a checkpoint computes its function again, and must draw the same mask
  const at::Tensor x = at::ones({100}).set_requires_grad(true);
  const at::Tensor y = checkpoint(forked_dropout, x);
  y.sum().backward();
  EXPECT_TRUE(x.grad().equal(y.detach()));
}

RANKS_TEST(ModelParallelRandom, RefusesDifferentSeeds, Ranks(2, 3)) {
  EXPECT_THAT([&] { model_parallel_manual_seed(rank() == 1 ? 8 : 7, world()); },
              ThrowsMessage<InvalidArgument>(HasSubstr("rank 1 has the seed 8 and rank 0 7")));
  model_parallel_manual_seed(7, world());
}

}  // namespace
}  // namespace model_parallel_random
}  // namespace lockstep::tensor_parallel
