#include "lockstep/parallel/virtual_ranks/random_streams.h"

#include <ATen/Context.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "lockstep/parallel/virtual_ranks/rank_seed.h"

namespace lockstep {
namespace {

at::Tensor draws_of(std::uint64_t seed) {
  at::manual_seed(seed);
  return at::randn({8});
}

TEST(RandomStreams, AreThoseOfAsManySeededGenerators) {
  const at::Tensor first = draws_of(7);
  const at::Tensor second = draws_of(rank_seed(7, 1));
  const at::Tensor outside = draws_of(9);
  RandomStreams streams;
  streams.seed(0, rank_seed(7, 0));
  streams.seed(1, rank_seed(7, 1));
  at::manual_seed(9);
  for (std::int64_t i = 0; i < 8; i += 4) {  // turns in between
    for (const int v : {0, 1}) {
      streams.enter(v);
      const at::Tensor drawn = at::randn({4});
      EXPECT_TRUE(drawn.equal((v == 0 ? first : second).narrow(0, i, 4))) << v << " from " << i;
      streams.leave(v);
    }
    EXPECT_TRUE(at::randn({4}).equal(outside.narrow(0, i, 4)));
  }
}

TEST(RandomStreams, BeginWhereTheDefaultGeneratorStands) {
  const at::Tensor expected = draws_of(3);
  at::manual_seed(3);
  RandomStreams streams;
  streams.begin(0);
  streams.begin(1);
  for (const int v : {0, 1}) {
    streams.enter(v);
    EXPECT_TRUE(at::randn({8}).equal(expected));
    streams.leave(v);
  }
}

TEST(RandomStreams, GoOnFromTheirState) {
  RandomStreams streams;
  streams.seed(0, 5);
  streams.enter(0);
  at::randn({3});  // an odd number: the generator keeps the other half of a pair
  streams.leave(0);
  const at::Tensor state = streams.state(0);
  streams.enter(0);
  const at::Tensor expected = at::randn({5});
  streams.leave(0);
  RandomStreams others;
  others.load(0, state);
  EXPECT_EQ(others.origin(), RandomStreams::Origin::LOADED);
  others.enter(0);
  EXPECT_TRUE(at::randn({5}).equal(expected));
  others.leave(0);
}

}  // namespace
}  // namespace lockstep
