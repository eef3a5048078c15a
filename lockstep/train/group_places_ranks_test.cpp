// A process outside of a group, and ranks in different parts of the library: what each part says.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <functional>

#include "lockstep/amp/grad_scaler.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/data/distributed_sampler.h"
#include "lockstep/job/groups.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/parallel/sync_batch_norm/convert_sync_batchnorm.h"
#include "lockstep/parallel/sync_batch_norm/sync_batch_norm.h"
#include "lockstep/tensor/collectives.h"
#include "lockstep/train/mean.h"
#include "lockstep/train/parameters_sha256.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

torch::Tensor parameter_of(std::vector<std::int64_t> shape) {
  return torch::ones(shape, torch::requires_grad());
}

template <typename Body> void expect_refused(const std::string& who, Body body) {
  EXPECT_THAT(body, ThrowsMessage<InvalidArgument>(
                        AllOf(HasSubstr(who + ": this process is not in the group, whose ranks are 0"),
                              HasSubstr("group.is_member()"))));
}

RANKS_TEST(NonMember, IsRefusedAtOnceByEveryPartThatNeedsTheGroup, Ranks(2, 3)) {
  const ProcessGroup group = new_group({0});
  if (rank() == 0) {
    DistributedDataParallel ddp(NamedTensors{{"w", parameter_of({2})}}, {}, {.process_group = group});
    EXPECT_EQ(mean_across_ranks(2.0, group), 2.0);
    return;
  }
  expect_refused("DistributedDataParallel", [&] {
    DistributedDataParallel(NamedTensors{{"w", parameter_of({2})}}, {}, {.process_group = group});
  });
  expect_refused("GradScaler", [&] { GradScaler({}, {.process_group = group}); });
  const torch::Tensor x = torch::ones({4, 3});
  expect_refused("SyncBatchNorm",
                 [&] { SyncBatchNorm(SyncBatchNormOptions(3).process_group(group))->forward(x); });
  expect_refused("SyncBatchNorm", [&] { sync_batch_norm(x, {}, {}, {}, {}, 0.1, 1e-5, group); });
  torch::nn::Sequential net(torch::nn::BatchNorm1d(3));
  expect_refused("convert_sync_batchnorm", [&] { convert_sync_batchnorm(*net, group); });
  expect_refused("mean_across_ranks", [&] { mean_across_ranks(1.0, group); });
  expect_refused("mean_across_ranks", [&] { mean_across_ranks(x, group); });
  expect_refused("Mean::across_ranks", [&] { Mean().across_ranks(group); });
  expect_refused("all_ranks_hold", [&] { all_ranks_hold(parameters_sha256({{"x", x}}), group); });
  // As torch's, the verbs do nothing; sparse ones, too.
  const torch::Tensor sparse = torch::eye(3).to_sparse();
  all_reduce(sparse, ReduceOp::SUM, group);
  EXPECT_TRUE(sparse.to_dense().equal(torch::eye(3)));
}

RANKS_TEST(DifferentPlaces, TwoPartsAreBothNamedWithTheUsualCause, Ranks(2, 3), Backends("shm", "tcp")) {
  torch::nn::Linear net(2, 1);
  const auto last_rank_has_ended_its_loop = [&] {
    DistributedDataParallel ddp(net, {.process_group = world()});  // a late rank hears of it in here
    if (rank() == size() - 1) {
      all_ranks_hold(parameters_sha256(ddp.named_parameters().pairs()));
    } else {
      ddp->forward(torch::ones({1, 2})).backward();
    }
    all_reduce(torch::ones({1}), ReduceOp::SUM, world());
  };
  EXPECT_THAT(
      last_rank_has_ended_its_loop,
      ThrowsMessage<Mismatch>(AllOf(
          HasSubstr("called all_gather(uint8[64]) for a checksum"), HasSubstr("called all_reduce(float32["),
          HasSubstr("avg) for the gradients of a DistributedDataParallel"),
          HasSubstr("inputs differ in length (use dist::join"), HasSubstr("one rank alone"))));
}

RANKS_TEST(DifferentPlaces, AForwardOfSyncBatchNormOnOneRankAloneNamesTheLayer, Ranks(2),
           Backends("shm", "tcp")) {
  torch::nn::Sequential net;
  net->push_back("fc", torch::nn::Linear(3, 3));
  net->push_back("bn1", torch::nn::BatchNorm1d(3));
  convert_sync_batchnorm(*net);
  const auto rank_zero_logs = [&] {
    if (rank() == 0) net->forward(torch::ones({4, 3}));
    all_reduce(torch::ones({7}), ReduceOp::SUM, world());
  };
  EXPECT_THAT(
      rank_zero_logs,
      ThrowsMessage<Mismatch>(
          AllOf(HasSubstr("called all_gather(float64[7]) for the forward of a SyncBatchNorm"),
                HasSubstr(rank() == 0 ? "for the forward of a SyncBatchNorm (bn1) on group" : "all_reduce #"),
                HasSubstr("throw_on_early_termination"))));
}

// ------------------------------------------------------------------------------------- training that nobody
// averages

std::vector<std::string> said_by(const std::function<void()>& body) {
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, const std::string& line) { lines.push_back(line); });
  body();
  set_log_sink(nullptr);
  return lines;
}

template <typename Model, typename Optimizer> void take_steps(Model& model, Optimizer& optimizer) {
  for (int i = 0; i < 12; ++i) {
    optimizer.zero_grad();
    model->forward(torch::ones({1, 2})).sum().backward();
    optimizer.step();
  }
}

RANKS_TEST(ForgottenWrapper, IsSaidOnceByAnOptimiser, Ranks(1, 2)) {
  torch::nn::Linear net(2, 1);
  optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.1));
  const auto lines = said_by([&] { take_steps(net, optimizer); });
  if (size() == 1) EXPECT_THAT(lines, IsEmpty());
  if (size() == 2)
    EXPECT_THAT(lines, ElementsAre(HasSubstr("10 steps, and nothing was averaged over the ranks")));
}

RANKS_TEST(ForgottenWrapper, IsSaidOnceByASecondEpochWithLibtorchsOptimiser, Ranks(2)) {
  torch::nn::Linear net(2, 1);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  DistributedSampler sampler(20);
  const auto epochs = [&] {
    for (int epoch = 0; epoch < 3; ++epoch) {
      sampler.set_epoch(epoch);
      sampler.start_pass();
      take_steps(net, optimizer);
    }
  };
  EXPECT_THAT(said_by(epochs), ElementsAre(HasSubstr("nothing was averaged over the ranks")));
}

RANKS_TEST(ForgottenWrapper, IsNotSaidOfAWrappedModel, Ranks(2)) {
  torch::nn::Linear net(2, 1);
  DistributedDataParallel ddp(net, {.process_group = world()});
  optim::SGD optimizer(ddp.parameters(), optim::SGDOptions(0.1));
  EXPECT_THAT(said_by([&] { take_steps(ddp, optimizer); }), IsEmpty());
}

}  // namespace
}  // namespace lockstep
