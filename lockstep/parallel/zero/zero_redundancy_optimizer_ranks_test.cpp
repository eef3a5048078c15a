// Steps that are shared out end in the bits of steps that every rank makes for itself.
#include "lockstep/parallel/zero/zero_redundancy_optimizer.h"

#include <gmock/gmock.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/lamb.h"
#include "lockstep/optim/lr_scheduler.h"
#include "lockstep/optim/sgd.h"
#include "testing/ranks.h"
#include "testing/shared_out_training.h"

namespace lockstep {
namespace {

using testing::backward_of_all;
using ::testing::HasSubstr;
using testing::known_parameters;
using testing::SharedOutTraining;
using ::testing::ThrowsMessage;
template <typename Local> using Zero = ZeroRedundancyOptimizer<Local>;

constexpr int SHARED_STEPS = 5;

void expect_same_parameters(const std::vector<at::Tensor>& have, const std::vector<at::Tensor>& want,
                            const std::string& what) {
  for (std::size_t i = 0; i < want.size(); ++i)
    EXPECT_TRUE(have[i].equal(want[i])) << what << ", parameter " << i;
}

// Against DDP with an optimiser that steps everything, and against one process with the inputs of all ranks,
// in which `OneProcess` steps.
template <typename Local, typename OneProcess, typename Options, typename OneProcessOptions>
void expect_shared_training(const Options& options, const OneProcessOptions& one_process_options,
                            const ProcessGroup& group, const char* what) {
  SharedOutTraining whole(group);
  Local every_rank(whole.parameters, options);
  const auto all = known_parameters();
  OneProcess one_process(all, one_process_options);
  for (int i = 0; i < SHARED_STEPS; ++i) {
    whole.backward(i);
    every_rank.step();
    backward_of_all(all, group.size(), i);
    one_process.step();
  }
  for (const bool as_bucket_view : {false, true}) {
    SharedOutTraining training(group);
    Zero<Local> optimizer(training.parameters, options,
                          {.process_group = group, .parameters_as_bucket_view = as_bucket_view});
    for (int i = 0; i < SHARED_STEPS; ++i) {
      training.backward(i);
      optimizer.step();
    }
    expect_same_parameters(training.parameters, whole.parameters, what);
    for (std::size_t p = 0; p < all.size(); ++p)
      EXPECT_LE((training.parameters[p] - all[p]).abs().max().item<double>(), 1e-12) << what << ' ' << p;
  }
}

RANKS_TEST(ZeroRedundancyOptimizer, StepsAsTheWholeOptimizer, Ranks(1, 2, 3, 4),
           Backends("shm", "tcp", "hierarchical")) {
  using namespace torch::optim;  // NOLINT(google-build-using-namespace): names of the optimisers
  expect_shared_training<optim::SGD, SGD>(optim::SGDOptions(0.1).momentum(0.9),
                                          torch::optim::SGDOptions(0.1).momentum(0.9), world(), "SGD");
  expect_shared_training<optim::Adam, Adam>(optim::AdamOptions(0.01), torch::optim::AdamOptions(0.01),
                                            world(), "Adam");
  expect_shared_training<optim::AdamW, AdamW>(optim::AdamWOptions(0.01).weight_decay(0.1),
                                              torch::optim::AdamWOptions(0.01).weight_decay(0.1), world(),
                                              "AdamW");
  expect_shared_training<optim::LAMB, optim::LAMB>(optim::LAMBOptions(0.01), optim::LAMBOptions(0.01),
                                                   world(), "LAMB");
  expect_shared_training<Adam, Adam>(torch::optim::AdamOptions(0.01).amsgrad(true),
                                     torch::optim::AdamOptions(0.01).amsgrad(true), world(),
                                     "libtorch's Adam");
  expect_shared_training<Adagrad, Adagrad>(AdagradOptions(0.01), AdagradOptions(0.01), world(), "Adagrad");
}

// The trust ratios of LAMB are not 1: without them the formula of AdamW would do.
RANKS_TEST(ZeroRedundancyOptimizer, LambStepsWithNormsOfWholeParameters, Ranks(3)) {
  SharedOutTraining training(world());
  Zero<optim::LAMB> optimizer(training.parameters, optim::LAMBOptions(0.1).weight_decay(0));
  const at::Tensor before = training.parameters[3].detach().clone();
  training.backward(0);
  const at::Tensor direction = training.parameters[3].grad().sign();  // of the first step, but for eps
  optimizer.step();
  const double ratio = before.norm().item<double>() / direction.norm().item<double>();
  const at::Tensor expected = before - 0.1 * ratio * direction;
  EXPECT_LE((training.parameters[3] - expected).abs().max().item<double>(), 1e-4);
  EXPECT_GT(std::abs(ratio - 1), 0.1);
}

// Two groups, of which one leaves its rate at the default, and a scheduler.
template <typename Optimizer>
std::vector<optim::ParamGroup> groups_of_two(const std::vector<at::Tensor>& all) {
  std::vector<optim::ParamGroup> groups;
  groups.emplace_back(std::vector<at::Tensor>(all.begin(), all.begin() + 2),
                      std::make_unique<Optimizer>(Optimizer().weight_decay(0.3)));
  groups.emplace_back(std::vector<at::Tensor>(all.begin() + 2, all.end() - 1));
  return groups;
}

template <typename Local, typename Options>
void expect_groups_and_schedule(const Options& defaults, const ProcessGroup& group) {
  std::vector<std::vector<at::Tensor>> results;
  const auto train = [&](auto& training, auto& optimizer) {
    optim::StepLR scheduler(optimizer, /*step_size=*/2, /*gamma=*/0.5);
    for (int i = 0; i < SHARED_STEPS; ++i) {
      training.backward(i);
      if (i == 3) optimizer.add_param_group(optim::ParamGroup({training.parameters.back()}));
      optimizer.step();
      scheduler.step();
    }
    EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), 0.01 * 0.25);
    results.push_back(training.parameters);
  };
  SharedOutTraining whole(group);
  Local every_rank(groups_of_two<Options>(whole.parameters), defaults);
  train(whole, every_rank);
  for (const bool as_bucket_view : {false, true}) {
    SharedOutTraining training(group);
    Zero<Local> optimizer(groups_of_two<Options>(training.parameters), defaults,
                          {.process_group = group, .parameters_as_bucket_view = as_bucket_view});
    train(training, optimizer);
    expect_same_parameters(training.parameters, results[0], as_bucket_view ? "bucket view" : "as they are");
  }
}

RANKS_TEST(ZeroRedundancyOptimizer, HasGroupsAndFollowsASchedule, Ranks(1, 2, 3, 4)) {
  expect_groups_and_schedule<optim::AdamW>(optim::AdamWOptions(0.01), world());
  expect_groups_and_schedule<torch::optim::Adam>(torch::optim::AdamOptions(0.01), world());
}

RANKS_TEST(ZeroRedundancyOptimizer, KeepsStateOfItsOwnParametersAlone, Ranks(1, 2, 3, 4)) {
  SharedOutTraining training(world());
  Zero<optim::AdamW> optimizer(training.parameters, optim::AdamWOptions(0.01));
  training.backward(0);
  optimizer.step();
  std::int64_t elements = 0;
  for (const auto& [name, tensor] : optimizer.local_optimizer().state_dict())
    if (name.ends_with(".exp_avg") || name.ends_with(".exp_avg_sq")) elements += tensor.numel();
  EXPECT_EQ(elements, 2 * optimizer.partition().elements[static_cast<std::size_t>(rank())]);
  EXPECT_EQ(optimizer.partition().elements, partition_parameters({{12, 7, 1, 30, 1, 18}}, size()).elements);
  EXPECT_TRUE(optimizer.state().empty());
  training.ddp.check_optimizers(optimizer);
}

// Of several dtypes and memory formats, small and large, and more ranks than some dtypes have parameters.
RANKS_TEST(ZeroRedundancyOptimizer, SharesParametersOfEveryDtypeAndLayout, Ranks(1, 2, 3, 4)) {
  const auto parameters = [] {
    std::vector<at::Tensor> all;
    const auto add = [&](const at::Tensor& tensor) { all.push_back(tensor.detach().requires_grad_()); };
    add(at::arange(300 * 1000, at::kFloat).view({300, 1000}) / 1e5);
    add(at::arange(24, at::kBFloat16).view({2, 3, 2, 2}).contiguous(at::MemoryFormat::ChannelsLast));
    add(at::arange(15, at::kDouble).view({3, 5}).t());
    add(at::arange(7, at::kHalf));
    add(at::zeros({0, 3}));
    add(at::arange(40, at::kFloat).narrow(0, 3, 20));
    return all;
  };
  const auto step = [&](const std::vector<at::Tensor>& all, torch::optim::Optimizer& optimizer) {
    for (const at::Tensor& parameter : all) parameter.mutable_grad() = at::full_like(parameter, 0.5);
    optimizer.step();
  };
  const auto want = parameters();
  optim::SGD whole(want, optim::SGDOptions(0.1).momentum(0.9));
  step(want, whole);
  step(want, whole);
  for (const bool as_bucket_view : {false, true}) {
    const auto have = parameters();
    Zero<optim::SGD> optimizer(have, optim::SGDOptions(0.1).momentum(0.9),
                               {.parameters_as_bucket_view = as_bucket_view});
    for (std::size_t i = 0; i < have.size(); ++i) {
      if (want[i].is_non_overlapping_and_dense()) EXPECT_EQ(have[i].strides(), want[i].strides()) << i;
    }
    step(have, optimizer);
    step(have, optimizer);
    expect_same_parameters(have, want, as_bucket_view ? "bucket view" : "as they are");
  }
}

// As torch::load() into a model does it: values arrive in memory of their own.
RANKS_TEST(ZeroRedundancyOptimizer, MovesParametersBackIntoTheBucketView, Ranks(1, 2, 3)) {
  SharedOutTraining training(world());
  Zero<optim::SGD> optimizer(training.parameters, optim::SGDOptions(0.1),
                             {.parameters_as_bucket_view = true});
  const void* const before = training.parameters[0].const_data_ptr();
  const auto loaded = known_parameters();
  for (std::size_t i = 0; i < loaded.size(); ++i)
    training.parameters[i].set_data((loaded[i].detach() * 2).clone());
  EXPECT_NE(training.parameters[0].const_data_ptr(), before);
  training.backward(0);
  optimizer.step();
  EXPECT_EQ(training.parameters[0].const_data_ptr(), before);
  for (std::size_t i = 0; i < loaded.size(); ++i) {
    const at::Tensor want = loaded[i].detach() * 2 - 0.1 * training.parameters[i].grad();
    EXPECT_LE((training.parameters[i] - want).abs().max().item<double>(), 1e-14) << i;
  }
}

// A graph that needs parameters as they were before the step says so on every rank, not on owners alone.
RANKS_TEST(ZeroRedundancyOptimizer, TellsGraphsThatParametersHaveChanged, Ranks(2, 3)) {
  for (const bool as_bucket_view : {false, true}) {
    const auto parameters = known_parameters();
    Zero<optim::SGD> optimizer(parameters, optim::SGDOptions(0.1),
                               {.parameters_as_bucket_view = as_bucket_view});
    std::vector<at::Tensor> losses;
    for (const at::Tensor& parameter : parameters) {
      parameter.mutable_grad() = at::ones_like(parameter);
      losses.push_back(parameter.pow(2).sum());  // saves the parameter
    }
    optimizer.step();
    for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_THROW(losses[i].backward(), c10::Error) << i;
  }
}

RANKS_TEST(ZeroRedundancyOptimizer, RunsAClosureOnEveryRank, Ranks(1, 2)) {
  SharedOutTraining training(world());
  Zero<torch::optim::SGD> optimizer(training.parameters, torch::optim::SGDOptions(0.1));
  const at::Tensor loss = optimizer.step([&] {
    training.backward(0);
    return at::full({}, 10 + rank());
  });
  EXPECT_EQ(loss.item<double>(), 10 + rank());
  const auto all = known_parameters();
  backward_of_all(all, size(), 0);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const at::Tensor want = all[i].detach() - 0.1 * all[i].grad();
    EXPECT_LE((training.parameters[i] - want).abs().max().item<double>(), 1e-14) << i;
  }
}

// A rank with fewer inputs steps what it owns with the others' averages.
RANKS_TEST(ZeroRedundancyOptimizer, StandsInForARankWithoutInputs, Ranks(1, 2, 3, 4)) {
  const auto inputs_of = [](int r) { return 1 + 2 * r; };
  SharedOutTraining training(world());
  Zero<optim::SGD> optimizer(training.parameters, optim::SGDOptions(0.1).momentum(0.9));
  join({&training.ddp, &optimizer}, [&] {
    for (int i = 0; i < inputs_of(rank()); ++i) {
      training.backward(i);
      optimizer.step();
    }
  });
  const auto all = known_parameters();
  torch::optim::SGD whole(all, torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int i = 0; i < inputs_of(size() - 1); ++i) {
    whole.zero_grad();
    at::Tensor loss = at::zeros({}, at::kDouble);
    for (int r = 0; r < size(); ++r)
      if (i < inputs_of(r)) loss = loss + testing::known_loss(all, r, i);
    (loss / size()).backward();
    whole.step();
  }
  for (std::size_t i = 0; i < all.size(); ++i)
    EXPECT_LE((training.parameters[i] - all[i]).abs().max().item<double>(), 1e-12) << i;
}

RANKS_TEST(ZeroRedundancyOptimizer, RefusesOnAllRanksAlike, Ranks(1, 2)) {
  const auto refuses = [&](const std::string& text, const std::vector<at::Tensor>& parameters) {
    EXPECT_THAT([&] { Zero<optim::SGD>(parameters, optim::SGDOptions(0.1)); },
                ThrowsMessage<InvalidArgument>(HasSubstr(text)));
  };
  const auto p = known_parameters();
  refuses("ZeroRedundancyOptimizer on group \"world\", rank " + std::to_string(rank()), {});
  refuses("there are no parameters", {});
  refuses("parameter 1 of group 0 is undefined", {p[0], at::Tensor()});
  refuses("parameter 0 of group 0 is the result of an operation", {p[0] * 2});
  refuses("parameter 2 of group 0 is there twice", {p[0], p[1], p[0]});
  refuses("was made by expand()", {at::ones({1}).expand({3}).requires_grad_()});
  refuses("only dense parameters", {at::ones({2, 2}).to_sparse().requires_grad_()});
  EXPECT_THAT([&] { Zero<optim::LAMB>(p, optim::LAMBOptions(0.1).max_grad_norm(1)); },
              ThrowsMessage<InvalidArgument>(HasSubstr("call clip_grad_norm_() on all parameters")));

  Zero<optim::SGD> optimizer(std::vector<at::Tensor>{p[0], p[1]}, optim::SGDOptions(0.1));
  EXPECT_THAT([&] { optimizer.add_param_group(optim::ParamGroup({p[1]})); },
              ThrowsMessage<InvalidArgument>(HasSubstr("parameter 0 of group 1 is there twice")));
  optimizer.step();  // the refused group has left nothing behind
  static_cast<torch::optim::Optimizer&>(optimizer).add_param_group(optim::ParamGroup({p[2]}));
  EXPECT_THAT([&] { optimizer.step(); },
              ThrowsMessage<InvalidArgument>(HasSubstr("call add_param_group() of the ZeroRedundancyOptim")));
}

RANKS_TEST(ZeroRedundancyOptimizer, NamesTheParameterInWhichRanksDiffer, Ranks(2, 3)) {
  std::vector<at::Tensor> parameters = known_parameters();
  if (rank() == 1) std::swap(parameters[0], parameters[1]);
  EXPECT_THAT([&] { Zero<optim::SGD>(parameters, optim::SGDOptions(0.1)); },
              ThrowsMessage<Mismatch>(HasSubstr("parameter \"0 of group 0\" is [4, 3] float64 on rank 0 but "
                                                "[7] float64 on rank 1")));
}

}  // namespace
}  // namespace lockstep
