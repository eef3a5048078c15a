#include "lockstep/parallel/gradients/pass_exchange.h"

#include <gmock/gmock.h>

#include "testing/ranks.h"

namespace lockstep {
namespace {

// Rank r used parameter r alone, and its gradients came in an order of its own.
RANKS_TEST(PassExchange, TellsWhichParametersARankUsedAndTheOrderOfRank0, Ranks(1, 2, 3)) {
  const auto ranks = static_cast<std::size_t>(size());
  PassExchange exchange(world());
  EXPECT_TRUE(exchange.was_used(ranks));  // nothing was told
  std::vector<bool> used(ranks + 1, false);
  used[static_cast<std::size_t>(rank())] = true;
  exchange.start_used(used);
  exchange.start_order({static_cast<std::size_t>(rank()), 7, 5});
  exchange.wait();
  for (std::size_t i = 0; i < ranks; ++i) EXPECT_TRUE(exchange.was_used(i));
  EXPECT_FALSE(exchange.was_used(ranks));
  exchange.forget_used();
  EXPECT_TRUE(exchange.was_used(ranks));
  EXPECT_EQ(exchange.take_order(), (std::vector<std::size_t>{0, 7, 5}));
  EXPECT_EQ(exchange.take_order(), std::nullopt);
}

}  // namespace
}  // namespace lockstep
