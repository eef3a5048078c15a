#include "cli/plan/model_states.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::cli {
namespace {

using enum ZeroStage;

constexpr StatePrecision MIXED = PRECISIONS[1];
constexpr StateOptimizer ADAM = OPTIMIZERS[2];

StateSetting setting_of(double parameters, std::int64_t nodes, std::int64_t ranks_per_node) {
  return {.parameters = parameters,
          .bytes = bytes_per_parameter(MIXED, ADAM),
          .nodes = nodes,
          .ranks_per_node = ranks_per_node};
}

double total_gb(double parameters, std::int64_t ranks, ZeroStage stage) {
  return state_row(setting_of(parameters, 1, ranks), StateForm::PRIVATE, stage).total() / 1e9;
}

TEST(PlanStates, AreTable1OfThePaperFor7500MillionParameters) {
  struct Row {
    std::int64_t ranks;
    double one, two, three;
  };
  for (const Row& row :
       {Row{1, 120, 120, 120}, Row{4, 52.5, 41.3, 30}, Row{16, 35.6, 21.6, 7.5}, Row{64, 31.4, 16.6, 1.88},
        Row{256, 30.4, 15.4, 0.47}, Row{1024, 30.1, 15.1, 0.12}}) {
    EXPECT_DOUBLE_EQ(total_gb(7.5e9, row.ranks, DDP), 120) << row.ranks;
    EXPECT_NEAR(total_gb(7.5e9, row.ranks, ONE), row.one, 0.05) << row.ranks;
    EXPECT_NEAR(total_gb(7.5e9, row.ranks, TWO), row.two, 0.05) << row.ranks;
    EXPECT_NEAR(total_gb(7.5e9, row.ranks, THREE), row.three, 0.005001) << row.ranks;
  }
}

// Those of three digits and more are cut there, not rounded.
TEST(PlanStates, AreTable1OfThePaperForLargeModels) {
  struct Row {
    double parameters;
    std::int64_t ranks;
    double one, two, three;
  };
  for (const Row& row :
       {Row{128e9, 1, 2048, 2048, 2048}, Row{128e9, 4, 896, 704, 512}, Row{128e9, 16, 608, 368, 128},
        Row{128e9, 64, 536, 284, 32}, Row{128e9, 256, 518, 263, 8}, Row{128e9, 1024, 513, 257, 2},
        Row{1e12, 1, 16000, 16000, 16000}, Row{1e12, 4, 7000, 5500, 4000}, Row{1e12, 16, 4750, 2875, 1000},
        Row{1e12, 64, 4187, 2218, 250}, Row{1e12, 256, 4046, 2054, 62}, Row{1e12, 1024, 4011, 2013, 15}}) {
    EXPECT_EQ(std::floor(total_gb(row.parameters, row.ranks, ONE)), row.one)
        << row.parameters << ' ' << row.ranks;
    EXPECT_EQ(std::floor(total_gb(row.parameters, row.ranks, TWO)), row.two)
        << row.parameters << ' ' << row.ranks;
    EXPECT_EQ(std::floor(total_gb(row.parameters, row.ranks, THREE)), row.three)
        << row.parameters << ' ' << row.ranks;
  }
}

TEST(PlanStates, DependOnPrecisionAndOptimizer) {
  const auto bytes_of = [](std::size_t precision, std::size_t optimizer) {
    const StateBytes bytes = bytes_per_parameter(PRECISIONS.at(precision), OPTIMIZERS.at(optimizer));
    return bytes.parameters * 10000 + bytes.gradients * 100 + bytes.optimizer;
  };
  const auto expect = [&](std::size_t precision, double weights, double masters) {
    EXPECT_EQ(bytes_of(precision, 0), weights * 10100 + masters) << "sgd";
    EXPECT_EQ(bytes_of(precision, 1), weights * 10100 + masters + 4) << "momentum";
    EXPECT_EQ(bytes_of(precision, 2), weights * 10100 + masters + 8) << "adam";
    EXPECT_EQ(bytes_of(precision, 3), weights * 10100 + masters + 8) << "adamw";
    EXPECT_EQ(bytes_of(precision, 4), weights * 10100 + masters + 8) << "lamb";
    EXPECT_EQ(bytes_of(precision, 5), weights * 10100 + masters + 4) << "lars";
  };
  expect(0, 4, 0);
  expect(1, 2, 4);
  expect(2, 2, 4);
}

TEST(PlanStates, OfOneMachineLieOnceInSharedMemory) {
  const StateSetting setting{.parameters = 1e9, .bytes = {4, 4, 8}, .ranks_per_node = 4};
  const StateRow one = state_row(setting, StateForm::SHARED, ONE);
  EXPECT_DOUBLE_EQ(one.parameters, 1e9);  // p P/N
  EXPECT_DOUBLE_EQ(one.gradients, 4e9);   // g P
  EXPECT_DOUBLE_EQ(one.optimizer, 2e9);   // K P/N
  for (const ZeroStage stage : {TWO, THREE})
    EXPECT_DOUBLE_EQ(state_row(setting, StateForm::SHARED, stage).total(), 16e9 / 4) << name_of(stage);
  EXPECT_DOUBLE_EQ(state_row(setting, StateForm::SHARED, DDP).total(), 16e9);
}

TEST(PlanStates, OfSeveralMachinesAreSharedOnEach) {
  const StateSetting setting = setting_of(1e9, 3, 4);
  const StateRow one = state_row(setting, StateForm::SHARED, ONE);
  EXPECT_DOUBLE_EQ(one.parameters, 2e9 / 4);
  EXPECT_DOUBLE_EQ(one.gradients, 2e9);
  EXPECT_DOUBLE_EQ(one.optimizer, 12e9 / 12);
  const StateRow two = state_row(setting, StateForm::SHARED, TWO);
  EXPECT_DOUBLE_EQ(two.total(), 2e9 / 4 + 14e9 / 12);
  EXPECT_DOUBLE_EQ(state_row(setting, StateForm::SHARED, THREE).total(), 16e9 / 12);
}

TEST(PlanStates, OfOneRankAMachineAreTheSameInBothForms) {
  StateSetting setting = setting_of(1e9, 5, 1);
  setting.live = 3e7;
  for (const ZeroStage stage : {DDP, ONE, TWO, THREE})
    EXPECT_DOUBLE_EQ(state_row(setting, StateForm::SHARED, stage).total(),
                     state_row(setting, StateForm::PRIVATE, stage).total())
        << name_of(stage);
}

TEST(PlanStates, HoldTheLayerThatIsComputed) {
  StateSetting setting =
      setting_of(2851e6, 2, 4);  // DeepSpeed's example, t5-3b: "largest_layer_memory = 4 l"
  setting.live = 32e6;
  const auto live = [&](StateForm form, ZeroStage stage) { return state_row(setting, form, stage).live; };
  EXPECT_DOUBLE_EQ(live(StateForm::PRIVATE, THREE), 4 * 32e6);
  EXPECT_DOUBLE_EQ(live(StateForm::PRIVATE, TWO), 2 * 32e6);
  EXPECT_DOUBLE_EQ(live(StateForm::PRIVATE, ONE), 0);
  EXPECT_DOUBLE_EQ(live(StateForm::PRIVATE, DDP), 0);
  EXPECT_DOUBLE_EQ(live(StateForm::SHARED, THREE), 2 * 32e6 / 4 + 2 * 32e6) << "a machine gathers it once";
  EXPECT_DOUBLE_EQ(live(StateForm::SHARED, TWO), 2 * 32e6);
  EXPECT_DOUBLE_EQ(live(StateForm::SHARED, ONE), 0);
  setting.nodes = 1;
  EXPECT_DOUBLE_EQ(live(StateForm::SHARED, THREE), 2 * 32e6) << "nothing is gathered on one machine";
  setting.ranks_per_node = 1;
  EXPECT_DOUBLE_EQ(live(StateForm::PRIVATE, THREE), 0) << "nor on one rank";
}

TEST(PlanStates, AddWhatEveryRankHas) {
  StateSetting setting = setting_of(1e9, 1, 2);
  setting.buffers = 5;
  setting.activations = 7;
  for (const StateForm form : {StateForm::PRIVATE, StateForm::SHARED})
    for (const ZeroStage stage : {DDP, ONE, TWO, THREE}) {
      const StateRow row = state_row(setting, form, stage);
      EXPECT_EQ(row.total(), row.parameters + row.gradients + row.optimizer + 12) << name_of(stage);
    }
}

TEST(PlanStates, FitOnMoreRanks) {
  StateSetting setting = setting_of(7.5e9, 1, 8);
  // 120 GB over W ranks: 10 GB from 12 on, a byte less from 13 on.
  EXPECT_EQ(ranks_that_fit(setting, StateForm::PRIVATE, THREE, 10e9), 12);
  EXPECT_EQ(ranks_that_fit(setting, StateForm::PRIVATE, THREE, 10e9 - 1), 13);
  EXPECT_EQ(ranks_that_fit(setting, StateForm::SHARED, THREE, 10e9), 16) << "whole machines";
  EXPECT_EQ(ranks_that_fit(setting, StateForm::SHARED, THREE, 5e9), 24);
  EXPECT_EQ(ranks_that_fit(setting, StateForm::PRIVATE, THREE, 120), 1000000000);
  EXPECT_EQ(ranks_that_fit(setting, StateForm::PRIVATE, TWO, 15e9), std::nullopt) << "2 P are whole";
  EXPECT_EQ(ranks_that_fit(setting, StateForm::PRIVATE, TWO, 16e9), 105);  // 15 + 105/W
  EXPECT_EQ(ranks_that_fit(setting, StateForm::PRIVATE, DDP, 100e9), std::nullopt);
  setting.buffers = 2e9;
  EXPECT_EQ(ranks_that_fit(setting, StateForm::PRIVATE, THREE, 10e9), 15);
  EXPECT_EQ(ranks_that_fit(setting, StateForm::PRIVATE, THREE, 2e9), std::nullopt);
}

}  // namespace
}  // namespace lockstep::cli
