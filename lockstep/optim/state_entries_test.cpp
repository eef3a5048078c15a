#include "lockstep/optim/state_entries.h"

#include <gmock/gmock.h>

#include "lockstep/base/error.h"

namespace lockstep::optim {
namespace {

TEST(StateEntries, HaveAnOwnerAndAKey) {
  const StateEntry state = entry_of("state.3.exp_avg");
  EXPECT_FALSE(state.is_option);
  EXPECT_EQ(state.owner, "3");
  EXPECT_EQ(state.key, "exp_avg");
  EXPECT_EQ(number_of_owner(state, "state.3.exp_avg"), 3u);
  const StateEntry option = entry_of("param_groups.0.lr");
  EXPECT_TRUE(option.is_option);
  EXPECT_EQ(option.owner, "0");
  EXPECT_EQ(option.key, "lr");
}

TEST(StateEntries, ANameMayHaveDotsAndNumbers) {
  EXPECT_EQ(entry_of("state.layers.0.weight.step").owner, "layers.0.weight");
  EXPECT_EQ(entry_of("state.layers.0.weight.step").key, "step");
  EXPECT_EQ(entry_of("param_groups.0.weight.betas").owner, "0.weight");
}

TEST(StateEntries, OtherNamesAreRefused) {
  for (const char* name : {"weight", "state.exp_avg", "states.0.exp_avg", ".0.exp_avg", "param_groups"})
    EXPECT_THROW(entry_of(name), InvalidArgument) << name;
  for (const char* name : {"state.x.exp_avg", "state.1x.exp_avg", "state..exp_avg", "state.0.weight.exp_avg"})
    EXPECT_THROW(number_of_owner(entry_of(name), name), InvalidArgument) << name;
}

TEST(StateEntries, ListsOfParametersSayThatAStateIsByNumber) {
  EXPECT_TRUE(is_by_number({{"state.0.step", {}}, {"param_groups.0.params", {}}}));
  EXPECT_FALSE(is_by_number({{"state.0.step", {}}, {"param_groups.0.lr", {}}}));
  EXPECT_FALSE(is_by_number({{"state.params.step", {}}}));
}

}  // namespace
}  // namespace lockstep::optim
