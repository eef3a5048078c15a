// What virtual ranks refuse, by name, and what a loop does that a program gets wrong.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/job/groups.h"
#include "lockstep/job/job.h"
#include "lockstep/job/join.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/parallel/sync_batch_norm/sync_batch_norm.h"
#include "lockstep/parallel/virtual_ranks/virtual_ranks.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

struct LineImpl : torch::nn::Module {
  LineImpl() { w = register_parameter("w", torch::ones({3})); }
  at::Tensor forward(const at::Tensor& x) { return (w * x).sum(); }
  at::Tensor w;
};
TORCH_MODULE(Line);

// Gradients of virtual rank v are v + 1: their average over 4 is 2.5.
void run_turn(DistributedDataParallel<LineImpl>& ddp, int v) {
  ddp->forward(torch::full({3}, v + 1.0)).backward();
}

void expect_average(const Line& net, double value = 2.5) {
  EXPECT_TRUE(net->w.grad().equal(torch::full({3}, value))) << net->w.grad();
}

template <typename Body> void expect_refusal(const std::string& words, Body body) {
  EXPECT_THAT(body, ThrowsMessage<InvalidArgument>(HasSubstr(words)));
}

RANKS_TEST(VirtualRanksRefuse, WhatDependsOnTheProcesses, Ranks(1, 2, 4),
           Variable("LOCKSTEP_VIRTUAL_RANKS", "4")) {
  Line net;
  expect_refusal("static_graph is not possible with virtual ranks",
                 [&] { DistributedDataParallel(net, {.static_graph = true}); });
  expect_refusal("backward_passes_per_step above 1",
                 [&] { DistributedDataParallel(net, {.backward_passes_per_step = 2}); });
  expect_refusal("a sparse gradient (w) is not possible",
                 [&] { DistributedDataParallel(net, {.sparse_gradients = {"w"}}); });
  DistributedDataParallel ddp(net);
  expect_refusal("communication hook \"bf16_compress\" is not possible with virtual ranks",
                 [&] { ddp.register_comm_hook("bf16_compress"); });
  EXPECT_EQ(ddp.comm_hook(), nullptr);
  expect_refusal("a Join is not possible with virtual ranks", [&] { join({&ddp}, [] {}); });
  SyncBatchNorm norm(SyncBatchNormOptions(3));
  expect_refusal("virtual ranks take turns", [&] { norm->forward(torch::ones({2, 3})); });
  norm->eval();
  norm->forward(torch::ones({2, 3}));
}

RANKS_TEST(VirtualRanksRefuse, AGroupOfSomeProcesses, Ranks(2, 3), Variable("LOCKSTEP_VIRTUAL_RANKS", "4")) {
  const ProcessGroup some = new_group({0});
  if (rank() > 0) return;
  Line net;
  expect_refusal("a group of some of the processes",
                 [&] { DistributedDataParallel(net, {.process_group = some}); });
}

RANKS_TEST(VirtualRanksRefuse, TrainingOutsideOfATurn, Ranks(1, 2, 4),
           Variable("LOCKSTEP_VIRTUAL_RANKS", "4")) {
  seed_virtual_ranks(1);
  Line net;
  DistributedDataParallel ddp(net);
  EXPECT_THAT([&] { ddp->forward(torch::ones({3})); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("outside of a virtual rank's turn"),
                                                   HasSubstr("this job has 4 virtual ranks on"))));
  ddp.eval();
  EXPECT_EQ(ddp->forward(torch::ones({3})).item<float>(), 3);
  ddp.train();
  for (const int v : virtual_ranks()) run_turn(ddp, v);  // nothing was broken
  expect_average(net);
}

RANKS_TEST(VirtualRanksRefuse, ASecondAveragedBackwardInATurn, Ranks(1, 2),
           Variable("LOCKSTEP_VIRTUAL_RANKS", "4")) {
  seed_virtual_ranks(1);
  Line net;
  DistributedDataParallel ddp(net);
  const auto body = [&] {
    for (const int v : virtual_ranks()) {
      run_turn(ddp, v);
      run_turn(ddp, v);
    }
  };
  expect_refusal("another backward() in the turn of virtual rank", body);
}

RANKS_TEST(VirtualRanksRefuse, ATurnWithoutBackward, Ranks(1, 2), Variable("LOCKSTEP_VIRTUAL_RANKS", "4")) {
  seed_virtual_ranks(1);
  Line net;
  DistributedDataParallel ddp(net);
  const auto body = [&] {
    for (const int v : virtual_ranks()) {
      if (v % 2 == 1) run_turn(ddp, v);
    }
  };
  expect_refusal("before it only 0 ran an averaged backward()", body);
}

RANKS_TEST(VirtualRanksRefuse, GradientsChangedWhileTheyAccumulate, Ranks(1, 2),
           Variable("LOCKSTEP_VIRTUAL_RANKS", "4")) {
  seed_virtual_ranks(1);
  Line net;
  DistributedDataParallel ddp(net);
  {
    const auto guard = ddp.no_sync();
    for (const int v : virtual_ranks()) run_turn(ddp, v);
  }
  net->w.mutable_grad().mul_(2);
  expect_refusal("gradients were changed between two rounds", [] { virtual_ranks().begin(); });
  net->w.mutable_grad().reset();
  for (const int v : virtual_ranks()) run_turn(ddp, v);
  expect_average(net);
}

RANKS_TEST(VirtualRanksRefuse, ParametersThatWrappersShare, Ranks(1, 2),
           Variable("LOCKSTEP_VIRTUAL_RANKS", "4")) {
  seed_virtual_ranks(1);
  Line net;
  DistributedDataParallel ddp(net);
  DistributedDataParallel other(net);
  expect_refusal("another wrapper has parameter \"w\"", [&] {
    for (const int v : virtual_ranks()) run_turn(ddp, v);
  });
}

RANKS_TEST(VirtualRanksDdpLoop, ForgetsAStepThatIsLeftOnAllProcesses, Ranks(1, 2),
           Variable("LOCKSTEP_VIRTUAL_RANKS", "4")) {
  seed_virtual_ranks(1);
  Line net;
  DistributedDataParallel ddp(net);
  for (const int v : virtual_ranks()) {
    run_turn(ddp, v);
    break;
  }
  ddp.zero_grad();
  for (const int v : virtual_ranks()) run_turn(ddp, v);
  expect_average(net);
}

RANKS_TEST(VirtualRanksDdpLoop, KeepsATensorThatTheProgramHolds, Ranks(1, 2, 3),
           Variable("LOCKSTEP_VIRTUAL_RANKS", "4")) {
  seed_virtual_ranks(1);
  Line net;
  DistributedDataParallel ddp(net);
  const at::Tensor flat = torch::zeros({5});
  net->w.mutable_grad() = flat.narrow(0, 1, 3);
  const at::Tensor own = net->w.grad();
  for (int step = 0; step < 3; ++step) {
    flat.zero_();
    for (const int v : virtual_ranks()) run_turn(ddp, v);
    EXPECT_TRUE(net->w.grad().is_same(own));
    EXPECT_TRUE(flat.equal(torch::tensor({0.0F, 2.5F, 2.5F, 2.5F, 0.0F}))) << flat;
  }
}

RANKS_TEST(VirtualRanksDdpLoop, ServesSeveralModels, Ranks(1, 2, 3),
           Variable("LOCKSTEP_VIRTUAL_RANKS", "4")) {
  seed_virtual_ranks(1);
  Line one;
  Line two;
  DistributedDataParallel first(one);
  DistributedDataParallel second(two);
  for (const int v : virtual_ranks()) {
    run_turn(first, v);
    run_turn(second, v + 1);
  }
  expect_average(one);
  expect_average(two, 3.5);
  for (const int v : virtual_ranks()) run_turn(first, v);  // the other one rests, and keeps its gradients
  expect_average(one, 5);                                  // added to the average
  expect_average(two, 3.5);
}

}  // namespace
}  // namespace lockstep
