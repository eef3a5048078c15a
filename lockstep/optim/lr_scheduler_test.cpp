// Schedules as formulas, and 200 steps of each scheduler beside Python's torch.optim.lr_scheduler.
#include "lockstep/optim/lr_scheduler.h"

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <numbers>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/optim/reduce_lr_on_plateau.h"
#include "lockstep/optim/sgd.h"
#include "testing/python.h"

namespace lockstep::optim {
namespace {

using ::testing::DoubleEq;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double PI = std::numbers::pi;

// Two groups with rates 0.1 and 0.02.
struct Two {
  Two() { optimizer.add_param_group(group(0.02)); }
  static ParamGroup group(double lr) {
    return ParamGroup({at::zeros({1})}, std::make_unique<SGDOptions>(SGDOptions(lr)));
  }
  double lr(std::size_t g) const { return optimizer.param_groups()[g].options().get_lr(); }
  double momentum(std::size_t g) const {
    return static_cast<const SGDOptions&>(optimizer.param_groups()[g].options()).momentum();
  }
  SGD optimizer{std::vector<ParamGroup>{group(0.1)}, SGDOptions(0.3).momentum(0.5)};
};

TEST(Schedule, Formulas) {
  EXPECT_THAT(schedule::step(30, 0.5)(59, 0.1), DoubleEq(0.05));
  EXPECT_THAT(schedule::step(30, 0.5)(60, 0.1), DoubleEq(0.025));
  EXPECT_THAT(schedule::multi_step({80, 30, 30}, 0.5)(30, 0.1), DoubleEq(0.025));
  EXPECT_THAT(schedule::multi_step({80, 30, 30}, 0.5)(29.5, 0.1), DoubleEq(0.1));
  EXPECT_THAT(schedule::exponential(0.9)(3, 0.1), DoubleEq(0.1 * std::pow(0.9, 3)));
  EXPECT_THAT(schedule::constant(0.25, 4)(3, 0.1), DoubleEq(0.025));
  EXPECT_THAT(schedule::constant(0.25, 4)(4, 0.1), DoubleEq(0.1));
  EXPECT_THAT(schedule::linear(0, 1, 5)(2, 0.1), DoubleEq(0.04));
  EXPECT_THAT(schedule::linear(0, 1, 5)(9, 0.1), DoubleEq(0.1));
  EXPECT_THAT(schedule::polynomial(10, 2)(5, 0.1), DoubleEq(0.025));
  EXPECT_THAT(schedule::polynomial(10, 2)(11, 0.1), DoubleEq(0));
  EXPECT_THAT(schedule::cosine(100, 0.02)(50, 0.1), DoubleNear(0.06, 1e-15));
  EXPECT_THAT(schedule::cosine_warm_restarts(10, 2)(10 + 5, 0.1), DoubleEq(0.1 * (1 + std::cos(PI / 4)) / 2));
  EXPECT_THAT(schedule::cosine_warm_restarts(10, 2)(10 + 20 + 3.5, 0.1),
              DoubleEq(0.1 * (1 + std::cos(PI * 3.5 / 40)) / 2));
  EXPECT_THAT(schedule::lambda([](double at) { return at * at; })(3, 0.1), DoubleEq(0.9));
}

// The article's function, and what it makes of the usual case.
TEST(Schedule, WarmUpAndCosine) {
  EXPECT_THAT(linear_warmup_cosine_decay(5, 10, 100, 0.1, 0.8), DoubleEq(0.1 + 0.7 * 5 / 10));
  EXPECT_THAT(linear_warmup_cosine_decay(10, 10, 100, 0.1, 0.8), DoubleEq(0.8));
  EXPECT_THAT(linear_warmup_cosine_decay(70, 10, 100, 0.1, 0.8),
              DoubleEq(0.1 + 0.5 * 0.7 * (1 + std::cos(PI * 60 / 90))));
  const auto plan = schedule::warmup_cosine(10, 100, 0.1);
  EXPECT_THAT(plan(0, 1), DoubleEq(0.1));
  EXPECT_THAT(plan(5, 1), DoubleEq(0.55));
  EXPECT_THAT(plan(100, 1), DoubleNear(0.1, 1e-15));
  EXPECT_EQ(plan(100, 1), plan(1000, 1));
  EXPECT_THAT(schedule::warmup_cosine(0, 10)(0, 1), DoubleEq(1));
  EXPECT_THAT(linear_scaling(0.1, 256, 2048), DoubleEq(0.8));  // the article's eight processes
}

TEST(Schedule, Combined) {
  const auto plan = schedule::sequential({schedule::linear(0.5, 1, 4), schedule::step(2, 0.1)}, {4});
  EXPECT_THAT(plan(2, 0.1), DoubleEq(0.075));
  EXPECT_THAT(plan(4, 0.1), DoubleEq(0.1));
  EXPECT_THAT(plan(7, 0.1), DoubleEq(0.01));
  EXPECT_THAT(schedule::chained({schedule::constant(0.5, 4), schedule::exponential(0.9)})(2, 0.1),
              DoubleEq(0.05 * 0.81));
}

TEST(Schedule, OneCycleStaysAtItsEnd) {
  const auto plan = schedule::one_cycle({.max_lr = 1, .total_steps = 10});
  EXPECT_THAT(plan(9, 7), DoubleNear(1 / 25.0 / 1e4, 1e-18));
  EXPECT_EQ(plan(9, 7), plan(20, 7));
}

struct Peer {
  std::string python;  // of `o`, an SGD optimiser
  std::function<std::unique_ptr<LRScheduler>(SGD&)> make;
};

template <typename S, typename... Arguments> Peer peer(const std::string& python, Arguments... arguments) {
  return {python, [=](SGD& o) { return std::make_unique<S>(o, arguments...); }};
}

std::vector<Peer> peers() {
  using Schedules = std::vector<Schedule>;
  const schedule::OneCycleOptions cycle = {.max_lr = 0.3, .total_steps = 201};
  schedule::OneCycleOptions three = cycle;
  three.three_phase = true;
  three.anneal_strategy = schedule::Anneal::LINEAR;
  three.pct_start = 0.4;
  return {
      peer<LambdaLR>("LambdaLR(o, lambda e: 0.97 ** e)", [](double e) { return std::pow(0.97, e); }),
      peer<LambdaLR>(
          "LambdaLR(o, [lambda e: 1 / (1 + e), lambda e: 2.0])",
          std::vector<LambdaLR::Lambda>{[](double e) { return 1 / (1 + e); }, [](double) { return 2.0; }}),
      peer<StepLR>("StepLR(o, 30)", 30),
      peer<StepLR>("StepLR(o, 7, 0.8)", 7, 0.8),
      peer<MultiStepLR>("MultiStepLR(o, [60, 20, 20, 150], 0.3)", std::vector<std::int64_t>{60, 20, 20, 150},
                        0.3),
      peer<ConstantLR>("ConstantLR(o)"),
      peer<LinearLR>("LinearLR(o)"),
      peer<LinearLR>("LinearLR(o, 0.01, 0.5, 50)", 0.01, 0.5, 50),
      peer<ExponentialLR>("ExponentialLR(o, 0.98)", 0.98),
      peer<PolynomialLR>("PolynomialLR(o, 150, 0.9)", 150, 0.9),
      peer<CosineAnnealingLR>("CosineAnnealingLR(o, 200)", 200),
      peer<CosineAnnealingLR>("CosineAnnealingLR(o, 30, 0.001)", 30, 0.001),
      peer<CosineAnnealingWarmRestarts>("CosineAnnealingWarmRestarts(o, 17, eta_min=0.003)", 17, 1, 0.003),
      peer<CosineAnnealingWarmRestarts>("CosineAnnealingWarmRestarts(o, 10, 2)", 10, 2),
      peer<OneCycleLR>("OneCycleLR(o, 0.3, 201)", cycle),
      peer<OneCycleLR>(
          "OneCycleLR(o, [0.3, 0.05], 201, pct_start=0.4, anneal_strategy='linear', three_phase=True)",
          std::vector<double>{0.3, 0.05}, three),
      peer<SequentialLR>(
          "SequentialLR(o, [LinearLR(o, 0.1, 1.0, 20), CosineAnnealingLR(o, 100), StepLR(o, 20)], [20, 120])",
          Schedules{schedule::linear(0.1, 1, 20), schedule::cosine(100), schedule::step(20)},
          std::vector<std::int64_t>{20, 120}),
      peer<ChainedScheduler>(
          "ChainedScheduler([ConstantLR(o, 0.1, 20), ExponentialLR(o, 0.99), MultiStepLR(o, [90])])",
          Schedules{schedule::constant(0.1, 20), schedule::exponential(0.99), schedule::multi_step({90})}),
  };
}

const char* const PRINT = R"(
import sys, warnings, torch
from torch.optim.lr_scheduler import *
warnings.simplefilter("ignore")
for case in sys.argv[1:]:
    o = torch.optim.SGD([{"params": [torch.zeros(1)], "lr": 0.1}, {"params": [torch.zeros(1)], "lr": 0.02}], momentum=0.5)
    scheduler = eval(case)
    for step in range(201):
        print(*(repr(float(group[key])) for group in o.param_groups for key in ("lr", "momentum")))
        if step < 200:
            o.step()
            scheduler.step()
)";

TEST(LRScheduler, TwoHundredStepsAsPythons) {
  std::vector<std::string> arguments;
  for (const Peer& p : peers()) arguments.push_back(p.python);
  std::istringstream lines(testing::run_python(PRINT, arguments));
  for (const Peer& p : peers()) {
    Two two;
    const auto scheduler = p.make(two.optimizer);
    for (int step = 0; step <= 200; ++step) {
      for (const std::size_t g : {0U, 1U}) {
        double lr = -1, momentum = -1;
        ASSERT_TRUE(lines >> lr >> momentum);
        ASSERT_NEAR(two.lr(g), lr, 1e-12) << p.python << ", step " << step << ", group " << g;
        ASSERT_NEAR(two.momentum(g), momentum, 1e-12) << p.python << ", step " << step << ", group " << g;
        ASSERT_EQ(scheduler->get_last_lr()[g], two.lr(g));
      }
      if (step < 200) scheduler->step();
    }
  }
  std::string rest;
  EXPECT_FALSE(lines >> rest);
}

TEST(LRScheduler, ResumesFromItsState) {
  for (const Peer& p : peers()) {
    Two whole, resumed;
    const auto expected = p.make(whole.optimizer);
    const auto after = p.make(resumed.optimizer);
    for (int step = 0; step < 50; ++step) expected->step();
    after->load_state_dict(expected->state_dict());
    EXPECT_EQ(after->last_epoch(), 50);
    for (int step = 0; step < 3; ++step) {
      EXPECT_EQ(resumed.lr(0), whole.lr(0)) << p.python;
      EXPECT_EQ(resumed.lr(1), whole.lr(1)) << p.python;
      EXPECT_EQ(resumed.momentum(1), whole.momentum(1)) << p.python;
      expected->step();
      after->step();
    }
  }
}

TEST(LRScheduler, AGroupThatIsAddedLaterIsScheduledToo) {
  Two two;
  ExponentialLR scheduler(two.optimizer, 0.5);
  scheduler.step();
  two.optimizer.add_param_group(Two::group(0.8));
  scheduler.step();
  EXPECT_THAT(scheduler.get_last_lr(), ElementsAre(DoubleEq(0.025), DoubleEq(0.005), DoubleEq(0.2)));
  EXPECT_THAT(scheduler.base_lrs(), ElementsAre(0.1, 0.02, 0.8));
}

TEST(LRScheduler, GoesToFractionsOfAnEpoch) {
  Two two;
  CosineAnnealingWarmRestarts scheduler(two.optimizer, 10);
  scheduler.step(12.5);
  EXPECT_THAT(two.lr(0), DoubleEq(0.1 * (1 + std::cos(PI / 4)) / 2));
  EXPECT_EQ(scheduler.last_epoch(), 12.5);
}

template <typename Call> std::string refused(const Call& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "taken";
}

TEST(LRScheduler, MistakesAreRefused) {
  Two two;
  auto& o = two.optimizer;
  EXPECT_THAT(refused([] { schedule::step(0); }), HasSubstr("step_size is 0"));
  EXPECT_THAT(refused([] { schedule::linear(2, 1, 5); }), HasSubstr("start_factor is 2"));
  EXPECT_THAT(refused([] { schedule::constant(-1); }), HasSubstr("factor is -1"));
  EXPECT_THAT(refused([] { schedule::cosine(0); }), HasSubstr("t_max"));
  EXPECT_THAT(refused([] { schedule::cosine_warm_restarts(5, 0); }), HasSubstr("t_mult"));
  EXPECT_THAT(refused([] { schedule::warmup_cosine(10, 10); }), HasSubstr("total_steps"));
  EXPECT_THAT(refused([] { schedule::one_cycle({.max_lr = 1, .total_steps = 0}); }),
              HasSubstr("total_steps"));
  EXPECT_THAT(refused([] { schedule::one_cycle({.max_lr = 1, .total_steps = 9, .pct_start = 2}); }),
              HasSubstr("pct_start"));
  EXPECT_THAT(refused([] { schedule::sequential({schedule::step(1)}, {3}); }),
              HasSubstr("one milestone less"));
  EXPECT_THAT(refused([] {
                schedule::sequential({schedule::step(1), schedule::step(1), schedule::step(1)}, {3, 2});
              }),
              HasSubstr("rise"));
  EXPECT_THAT(refused([] { schedule::chained({}); }), HasSubstr("no schedules"));
  EXPECT_THAT(refused([] { linear_scaling(0.1, 0, 5); }), HasSubstr("base_batch"));
  EXPECT_THAT(refused([&] { LRScheduler(o, std::vector<Schedule>(3, schedule::step(1))); }),
              HasSubstr("3 schedules for 2 parameter groups"));
  StepLR scheduler(o, 5);
  EXPECT_THAT(refused([&] { scheduler.step(-1); }), HasSubstr("no step -1"));
  EXPECT_THAT(refused([&] { scheduler.load_state_dict({}); }), HasSubstr("last_epoch, base_lrs, last_lr"));
  NamedTensors state = scheduler.state_dict();
  state[1].second = at::zeros({3});
  EXPECT_THAT(refused([&] { scheduler.load_state_dict(state); }), HasSubstr("3 parameter groups"));
  EXPECT_EQ(scheduler.base_lrs().size(), 2U);
}

// ------------------------------------------------------------------------------------------------------
// ReduceLROnPlateau

// A metric that falls, rises, stays and is not a number for a while.
std::vector<double> metrics() {
  std::vector<double> all;
  for (int i = 0; i < 200; ++i)
    all.push_back(i % 50 == 49 ? NAN : 2 + std::cos(i / 9.0) + (i > 100 ? 1e-5 * i : std::exp(-i / 10.0)));
  return all;
}

const char* const PRINT_PLATEAU = R"(
import sys, torch
for case in sys.argv[2:]:
    o = torch.optim.SGD([{"params": [torch.zeros(1)], "lr": 0.1}, {"params": [torch.zeros(1)], "lr": 0.02}])
    scheduler = eval("torch.optim.lr_scheduler.ReduceLROnPlateau(o, " + case + chr(41))
    for metric in sys.argv[1].split():
        scheduler.step(float(metric))
        print(*(repr(group["lr"]) for group in o.param_groups))
)";

TEST(ReduceLROnPlateau, TwoHundredStepsAsPythons) {
  using Options = ReduceLROnPlateauOptions;
  const std::vector<std::pair<std::string, Options>> cases = {
      {"", {}},
      {"'max', 0.5, 3, cooldown=4, min_lr=[0.01, 0.001]",
       {.mode = Options::Mode::MAX, .factor = 0.5, .patience = 3, .cooldown = 4, .min_lr = {0.01, 0.001}}},
      {"'min', 0.7, 2, 0.05, 'abs', eps=1e-3",
       {.factor = 0.7,
        .patience = 2,
        .threshold = 0.05,
        .threshold_mode = Options::ThresholdMode::ABS,
        .eps = 1e-3}},
      {"'max', 0.9, 0, 0.2, 'abs'",
       {.mode = Options::Mode::MAX,
        .factor = 0.9,
        .patience = 0,
        .threshold = 0.2,
        .threshold_mode = Options::ThresholdMode::ABS}},
  };
  std::ostringstream values;
  values.precision(17);
  for (const double metric : metrics()) values << metric << ' ';
  std::vector<std::string> arguments = {values.str()};
  for (const auto& [python, options] : cases) arguments.push_back(python);
  std::istringstream lines(testing::run_python(PRINT_PLATEAU, arguments));
  for (const auto& [python, options] : cases) {
    Two two, resumed;
    ReduceLROnPlateau scheduler(two.optimizer, options);
    ReduceLROnPlateau other(resumed.optimizer, options);
    for (std::size_t i = 0; i < metrics().size(); ++i) {
      scheduler.step(metrics()[i]);
      for (const std::size_t g : {0U, 1U}) {
        double lr = -1;
        ASSERT_TRUE(lines >> lr);
        ASSERT_NEAR(two.lr(g), lr, 1e-15) << python << ", step " << i;
      }
      if (i >= 90) other.step(metrics()[i]);
      if (i == 89 || i == 120) other.load_state_dict(scheduler.state_dict());
      if (i >= 89) ASSERT_EQ(resumed.lr(1), two.lr(1)) << python << ", step " << i;
    }
    EXPECT_LT(two.lr(0), 0.1) << "a metric that never made a difference shows nothing";
  }
}

TEST(ReduceLROnPlateau, MistakesAreRefused) {
  Two two;
  EXPECT_THAT(refused([&] { ReduceLROnPlateau(two.optimizer, {.factor = 1}); }), HasSubstr("factor is 1"));
  EXPECT_THAT(refused([&] {
                ReduceLROnPlateau(two.optimizer, {.min_lr = {1, 2, 3}});
              }),
              HasSubstr("3 values of min_lr"));
  ReduceLROnPlateau scheduler(two.optimizer);
  EXPECT_THAT(refused([&] { scheduler.load_state_dict({}); }), HasSubstr("not the state"));
}

}  // namespace
}  // namespace lockstep::optim
