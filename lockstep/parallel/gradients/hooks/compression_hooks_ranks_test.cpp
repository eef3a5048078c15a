// powerSGD, topk and int8 against their formulas: what all ranks contribute is known, so each result can be
// computed.
#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/parallel/gradients/hooks/int8_hook.h"
#include "lockstep/parallel/gradients/hooks/power_sgd_hook.h"
#include "lockstep/parallel/gradients/hooks/top_k_hook.h"
#include "lockstep/tensor/collectives.h"
#include "testing/hook_trial.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const std::vector<std::vector<std::int64_t>> COMPRESSED_SHAPES = {
    {40, 30}, {17}, {30, 64}, {8, 3, 3, 3}, {1}};

template <typename Hook> std::shared_ptr<Hook> add(HookTrial& trial, std::shared_ptr<Hook> hook) {
  trial.ddp.register_comm_hook(hook);
  return hook;
}

PowerSgdOptions from_the_first(std::int64_t rank) {
  return {.matrix_approximation_rank = rank, .start_powerSGD_iter = 0};
}

at::Tensor mean_over_ranks(const at::Tensor& tensor, const ProcessGroup& group) {
  at::Tensor mean = tensor.to(at::kDouble).clone();
  all_reduce(mean, ReduceOp::AVG, group);
  return mean;
}

void expect_near(const at::Tensor& actual, const at::Tensor& expected, double tolerance,
                 const std::string& what) {
  EXPECT_LE(largest(actual.to(at::kDouble) - expected.to(at::kDouble)),
            tolerance * (1e-300 + largest(expected)))
      << what;
}

// With the mean M of what the ranks contribute and last step's Q, the result is the projection of M onto the
// columns of M Q; what each rank keeps back is its contribution less the result. Everything else is the mean.
void expect_projections(HookTrial& trial, PowerSgdHook& hook, int step, double tolerance) {
  const auto before = hook.state_dict();
  const auto own = trial.gradients(trial.group.rank(), step);
  const auto mean = trial.mean(step);
  const auto result = trial.step(own);
  const auto after = hook.state_dict();
  for (std::size_t i = 0; i < mean.size(); ++i) {
    const std::string name = "w" + std::to_string(i);
    SCOPED_TRACE(lockstep::str(name, " step ", step));
    if (!before.contains("q." + name)) {
      expect_near(result[i], mean[i], tolerance, "plain");
      continue;
    }
    const std::int64_t rows = mean[i].size(0);
    const at::Tensor error = before["error." + name].to(at::kDouble).view({rows, -1});
    const at::Tensor m = mean[i].view({rows, -1}) + mean_over_ranks(error, trial.group);
    const at::Tensor p = std::get<0>(at::linalg_qr(m.mm(before["q." + name].to(at::kDouble))));
    expect_near(result[i].view({rows, -1}), p.mm(p.t().mm(m)), tolerance, "projection");
    const at::Tensor kept =
        own[i].to(at::kDouble).view({rows, -1}) + error - result[i].to(at::kDouble).view({rows, -1});
    expect_near(after["error." + name].view({rows, -1}), kept, tolerance, "error");
  }
}

RANKS_TEST(PowerSgd, ProjectsTheMeanOntoItsBestDirections, Ranks(1, 2, 3, 4), EveryBackend()) {
  for (const std::int64_t rank : {1, 2, 3, 7}) {
    for (const auto dtype : {at::kDouble, at::kFloat}) {
      HookTrial trial(world(), dtype, COMPRESSED_SHAPES, /*bucket_cap_mb=*/0.004);
      const auto hook = add(trial, std::make_shared<PowerSgdHook>(from_the_first(rank)));
      trial.step(trial.gradients(this->rank(), 0));
      EXPECT_TRUE(hook->state_dict().contains("q.w0") && hook->state_dict().contains("error.w2"));
      EXPECT_FALSE(hook->state_dict().contains("q.w1") || hook->state_dict().contains("error.w4"));
      for (int step = 1; step < 5; ++step) {
        expect_projections(trial, *hook, step, dtype == at::kDouble ? 1e-10 : 1e-3);
      }
    }
  }
}

// Nothing is lost: what came out over the steps and what is still kept back are what went in.
template <typename MakeHook>
void expect_nothing_lost(const ProcessGroup& group, at::ScalarType dtype, double tolerance, MakeHook make) {
  HookTrial trial(group, dtype, COMPRESSED_SHAPES);
  const auto hook = add(trial, make());
  at::Tensor out, in;
  for (int step = 0; step < 20; ++step) {
    const at::Tensor result = joined(trial.step(trial.gradients(group.rank(), step)));
    out = step == 0 ? result : out + result;
    in = step == 0 ? joined(trial.mean(step)) : in + joined(trial.mean(step));
  }
  std::vector<at::Tensor> kept;
  const auto state = hook->state_dict();
  for (std::size_t i = 0; i < COMPRESSED_SHAPES.size(); ++i) {
    const at::Tensor* error = state.find("error.w" + std::to_string(i));
    kept.push_back(error != nullptr ? *error : at::zeros(trial.sizes[i], at::kDouble));
  }
  expect_near(out + mean_over_ranks(joined(kept), group), in, tolerance, "sum over 20 steps");
}

RANKS_TEST(PowerSgd, LosesNothing, Ranks(1, 2, 3)) {
  const auto make = [] { return std::make_shared<PowerSgdHook>(from_the_first(1)); };
  expect_nothing_lost(world(), at::kDouble, 1e-12, make);
  expect_nothing_lost(world(), at::kFloat, 1e-5, make);
}

RANKS_TEST(TopK, LosesNothing, Ranks(1, 2, 3)) {
  const auto make = [] { return std::make_shared<TopKHook>(); };
  expect_nothing_lost(world(), at::kDouble, 1e-12, make);
  expect_nothing_lost(world(), at::kFloat, 1e-5, make);
  expect_nothing_lost(world(), at::kBFloat16, 0.05, make);  // the results are rounded
}

// The same gradient over and over: warm start finds the best approximation there is, that of the singular
// values.
RANKS_TEST(PowerSgd, WarmStartFindsTheBestApproximation, Ranks(2)) {
  HookTrial trial(world(), at::kDouble, {{20, 15}});
  auto options = from_the_first(3);
  options.use_error_feedback = false;
  add(trial, std::make_shared<PowerSgdHook>(options));
  const auto [u, s, v] = at::linalg_svd(trial.mean(0)[0], /*full_matrices=*/false);
  const at::Tensor best = u.narrow(1, 0, 3).mul(s.narrow(0, 0, 3)).mm(v.narrow(0, 0, 3));
  at::Tensor result;
  for (int step = 0; step < 300; ++step) result = trial.step(trial.gradients(rank(), 0))[0];
  expect_near(result, best, 1e-6, "best approximation");
}

RANKS_TEST(PowerSgd, StartsLater, Ranks(2, 3)) {
  HookTrial plain(world(), at::kFloat, COMPRESSED_SHAPES, /*bucket_cap_mb=*/0.004);
  HookTrial late(world(), at::kFloat, COMPRESSED_SHAPES, /*bucket_cap_mb=*/0.004);
  const auto hook = add(late, std::make_shared<PowerSgdHook>(PowerSgdOptions{.start_powerSGD_iter = 2}));
  for (int step = 0; step < 3; ++step) {
    const auto gradients = plain.gradients(rank(), step);
    EXPECT_EQ(joined(plain.step(gradients)).equal(joined(late.step(gradients))), step < 2);
  }
  EXPECT_EQ(hook->iteration(), 3);
}

// Without warm start each step begins with other random numbers, the same on all ranks.
RANKS_TEST(PowerSgd, StartsColdIfToldTo, Ranks(2)) {
  HookTrial trial(world(), at::kFloat, COMPRESSED_SHAPES);
  auto options = from_the_first(1);
  options.warm_start = options.use_error_feedback = false;
  const auto hook = add(trial, std::make_shared<PowerSgdHook>(options));
  const at::Tensor first = joined(trial.step(trial.gradients(rank(), 0)));
  const at::Tensor second = joined(trial.step(trial.gradients(rank(), 0)));
  EXPECT_FALSE(first.equal(second));
  EXPECT_EQ(hook->state_dict().size(), 2U);  // two counters
}

RANKS_TEST(PowerSgd, KeepsItsBoundAndSendsWhatItShould, Ranks(2, 3, 4)) {
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    HookTrial trial(world(), dtype, COMPRESSED_SHAPES);
    const auto hook = add(trial, std::make_shared<PowerSgdHook>(from_the_first(1)));
    const at::Tensor result = joined(trial.step(trial.gradients(rank(), 0)));
    double norms = 0;
    for (int r = 0; r < size(); ++r) norms += joined(trial.gradients(r, 0)).norm().item<double>() / size();
    const double error = (result - joined(trial.mean(0))).norm().item<double>();
    EXPECT_LE(error, hook->error_bound(dtype, size()).of_norm * norms);
    EXPECT_GT(error, 0.1 * norms);  // it is compressed
    const std::uint64_t numbers = (40 + 30) + (30 + 64) + (8 + 27) + 17 + 1;
    EXPECT_EQ(trial.ddp.stats().bytes_sent, numbers * (dtype == at::kDouble ? 8 : 4));
  }
}

// Matrices of any layout and of complex numbers; zeros.
RANKS_TEST(PowerSgd, TakesOtherMatrices, Ranks(2)) {
  HookTrial trial(world(), at::kComplexDouble, {{12, 9}, {3}});
  add(trial, std::make_shared<PowerSgdHook>(from_the_first(9)));
  const auto own = trial.gradients(rank(), 0);
  for (int step = 0; step < 2; ++step) {
    const auto zero = trial.step({at::zeros_like(own[0]), at::zeros_like(own[1])});
    EXPECT_EQ(largest(at::view_as_real(zero[0])), 0);
  }
  const at::Tensor weight = at::zeros({30, 20}, at::kDouble).t().requires_grad_(true);
  DistributedDataParallel<void> ddp({{"w", weight}}, {}, {.process_group = world()});
  ddp.register_comm_hook(std::make_shared<PowerSgdHook>(from_the_first(1)));
  const at::Tensor column = at::arange(20, at::kDouble).view({20, 1}) + 1;
  const at::Tensor low_rank = column * (at::arange(30, at::kDouble) - 7);
  ddp.forward([&] { return (weight * low_rank).sum(); }).backward();
  expect_near(weight.grad(), low_rank, 1e-12, "a matrix of rank one is exact");
}

// A step whose gradients are not finite, as an overflow under a gradient scaler, is forgotten.
template <typename MakeHook> void expect_recovery(const ProcessGroup& group, MakeHook make) {
  HookTrial trial(group, at::kFloat, COMPRESSED_SHAPES);
  const auto hook = add(trial, make());
  trial.step(trial.gradients(group.rank(), 0));
  auto broken = trial.gradients(group.rank(), 1);
  if (group.rank() == 0) {
    broken[0][3][4] = std::numeric_limits<double>::infinity();
    broken[2][0][0] = std::numeric_limits<double>::quiet_NaN();
  }
  const auto overflown = trial.step(broken);
  EXPECT_FALSE(overflown[0].isfinite().all().item<bool>());
  EXPECT_FALSE(overflown[2].isfinite().all().item<bool>());
  for (const auto& item : hook->state_dict()) {
    EXPECT_TRUE(item.value().isfinite().all().template item<bool>()) << item.key();
  }
  EXPECT_TRUE(joined(trial.step(trial.gradients(group.rank(), 2))).isfinite().all().template item<bool>());
}

RANKS_TEST(CompressionHooks, RecoverFromAnOverflow, Ranks(1, 2, 3)) {
  expect_recovery(world(), [] { return std::make_shared<PowerSgdHook>(from_the_first(2)); });
  expect_recovery(world(), [] { return std::make_shared<TopKHook>(); });
  expect_recovery(world(), [] { return std::make_shared<Int8Hook>(); });
}

// A new wrapper whose hook loads the state goes on with the same bits.
template <typename MakeHook> void expect_state_carries_on(const ProcessGroup& group, MakeHook make) {
  HookTrial whole(group, at::kFloat, COMPRESSED_SHAPES, /*bucket_cap_mb=*/0.004);
  const auto hook = add(whole, make());
  for (int step = 0; step < 4; ++step) whole.step(whole.gradients(group.rank(), step));
  const auto state = hook->state_dict();
  HookTrial resumed(group, at::kFloat, COMPRESSED_SHAPES, /*bucket_cap_mb=*/0.004);
  const auto other = add(resumed, make());
  other->load_state_dict(state);
  for (int step = 4; step < 8; ++step) {
    const auto gradients = whole.gradients(group.rank(), step);
    EXPECT_TRUE(joined(whole.step(gradients)).equal(joined(resumed.step(gradients)))) << step;
  }
}

RANKS_TEST(CompressionHooks, StateCarriesOn, Ranks(1, 2, 3)) {
  const auto power = [](bool warm) {
    return [warm] {
      return std::make_shared<PowerSgdHook>(PowerSgdOptions{.start_powerSGD_iter = 2, .warm_start = warm});
    };
  };
  expect_state_carries_on(world(), power(true));
  expect_state_carries_on(world(), power(false));
  expect_state_carries_on(world(), [] { return std::make_shared<TopKHook>(); });
}

RANKS_TEST(CompressionHooks, RefuseWhatIsNotTheirs, Ranks(1)) {
  PowerSgdHook power(from_the_first(1));
  TopKHook top_k;
  CommHook::State foreign("tensor");
  foreign.insert("velocity.w", at::ones({2}));
  EXPECT_THROW(power.load_state_dict(foreign), InvalidArgument);
  EXPECT_THROW(top_k.load_state_dict(foreign), InvalidArgument);
  EXPECT_THROW(Int8Hook().load_state_dict(foreign), InvalidArgument);
  EXPECT_THROW(top_k.load_state_dict(power.state_dict()), InvalidArgument);
  EXPECT_THROW(PowerSgdHook({.matrix_approximation_rank = 0}), InvalidArgument);
  EXPECT_THROW(PowerSgdHook({.min_compression_rate = -1}), InvalidArgument);
  EXPECT_THROW(TopKHook({.ratio = 0}), InvalidArgument);
  EXPECT_THROW(TopKHook({.ratio = 1.5}), InvalidArgument);
  HookTrial trial(world(), at::kFloat, COMPRESSED_SHAPES);
  const auto hook = add(trial, std::make_shared<TopKHook>());
  CommHook::State of_another_model("tensor");
  of_another_model.insert("error.w0", at::ones({7}));
  hook->load_state_dict(of_another_model);
  EXPECT_THAT([&] { trial.step(trial.gradients(0, 0)); },
              ThrowsMessage<InvalidArgument>(HasSubstr("it is of another model")));
}

// Every rank's k largest elements of gradient and leftovers, chosen by sorting.
RANKS_TEST(TopK, SendsTheLargest, Ranks(1, 2, 3, 4), EveryBackend()) {
  HookTrial trial(world(), at::kDouble, {{1024}});
  add(trial, std::make_shared<TopKHook>(TopKOptions{.ratio = 0.02}));
  std::vector<at::Tensor> leftovers(static_cast<std::size_t>(size()), at::zeros({1024}, at::kDouble));
  for (int step = 0; step < 4; ++step) {
    at::Tensor expected = at::zeros({1024}, at::kDouble);
    for (int r = 0; r < size(); ++r) {
      at::Tensor& left = leftovers[static_cast<std::size_t>(r)];
      const at::Tensor all = trial.gradients(r, step)[0] + left;
      const at::Tensor threshold =
          std::get<0>(all.abs().sort(0, /*descending=*/true))[20];  // 0.02 * 1024: 21
      const at::Tensor sent = at::where(all.abs() >= threshold, all, at::zeros_like(all));
      expected += sent / size();
      left = all - sent;
    }
    expect_near(trial.step(trial.gradients(rank(), step))[0], expected, 1e-14, "mean of what was sent");
  }
  EXPECT_EQ(trial.ddp.stats().bytes_sent, 4 * (21 * 8 + 88));  // 21 places of 4 bytes, aligned
}

RANKS_TEST(TopK, SendsAllIfToldTo, Ranks(2)) {
  HookTrial trial(world(), at::kDouble, COMPRESSED_SHAPES);
  add(trial, std::make_shared<TopKHook>(TopKOptions{.ratio = 1, .use_error_feedback = false}));
  expect_near(joined(trial.step(trial.gradients(rank(), 0))), joined(trial.mean(0)), 1e-15, "mean");
}

// Multiples of the step travel without loss, chunk by chunk: scales differ by 2^20 here.
RANKS_TEST(Int8, IsExactForMultiplesOfItsStep, Ranks(1, 2, 3, 4), EveryBackend()) {
  constexpr std::int64_t CHUNKS = 12;
  HookTrial trial(world(), at::kFloat, {{CHUNKS * Int8Hook::CHUNK}});
  add(trial, std::make_shared<Int8Hook>());
  at::Tensor gradient = at::arange(CHUNKS * Int8Hook::CHUNK, at::kFloat).remainder(255) - 127;
  gradient = gradient.view({CHUNKS, -1}) * at::pow(2, at::arange(CHUNKS, at::kFloat) * 2 - 10).view({-1, 1});
  gradient = gradient.view({-1});
  EXPECT_TRUE(trial.step({gradient})[0].equal(gradient));
}

RANKS_TEST(Int8, SendsAByteForEachElement, Ranks(2, 4)) {
  constexpr std::uint64_t ELEMENTS = 16 * Int8Hook::CHUNK;
  HookTrial trial(world(), at::kFloat, {{ELEMENTS}});
  add(trial, std::make_shared<Int8Hook>());
  trial.step(trial.gradients(rank(), 0));
  const std::uint64_t ranks = static_cast<std::uint64_t>(size());
  const std::uint64_t message = ELEMENTS + 16 * sizeof(float);
  EXPECT_EQ(trial.ddp.stats().bytes_sent, message + message / ranks);
}

}  // namespace
}  // namespace lockstep
