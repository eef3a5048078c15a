// DistributedDataParallel on a GPU: what ranks compute there is what one process computes on the CPU with the
// whole batches.
#include "lockstep/parallel/ddp/distributed_data_parallel.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/job/join.h"
#include "lockstep/parallel/gradients/hooks/hook_registry.h"
#include "lockstep/tensor/collectives.h"
#include "testing/ranks.h"
#include "tests/cuda/training.h"

namespace lockstep::cuda_tests {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr int STEPS = 8;
constexpr double EXACT = 1e-11;

torch::optim::SGD momentum_sgd(const std::vector<at::Tensor>& parameters) {
  return torch::optim::SGD(parameters, torch::optim::SGDOptions(0.05).momentum(0.9));
}

bool uses_extra(int step) { return step % 3 != 1; }

Net train_alone(bool always_extra) {
  Net net = make_net(0);
  auto optimizer = momentum_sgd(net->parameters());
  for (int step = 0; step < STEPS; ++step) {
    optimizer.zero_grad();
    const Batch batch = Batch::make(step);
    torch::cross_entropy_loss(net->forward(batch.data, always_extra || uses_extra(step)), batch.target)
        .backward();
    optimizer.step();
  }
  return net;
}

struct Way {
  DistributedDataParallelOptions options = {};
  bool always_extra = true;
  bool set_to_none = true;
  std::string hook = {};
};

// Trains on this rank's GPU and compares with one process.
void expect_same_training(const ProcessGroup& group, Way way, double bound = EXACT) {
  Net net = make_net(/*seed=*/group.rank());  // another model on each rank, until it is wrapped
  net->to(gpu_of(group));
  way.options.process_group = group;
  way.options.bucket_cap_mb = 0.001;
  DistributedDataParallel ddp(net, way.options);
  if (!way.hook.empty()) ddp.register_comm_hook(way.hook);
  auto optimizer = momentum_sgd(ddp.parameters());
  for (int step = 0; step < STEPS; ++step) {
    optimizer.zero_grad(way.set_to_none);
    const Batch batch = Batch::make(step).share(group);
    const at::Tensor output = ddp->forward(batch.data, way.always_extra || uses_extra(step));
    torch::cross_entropy_loss(output, batch.target).backward();
    optimizer.step();
  }
  EXPECT_GT(ddp.stats().buckets, 2u);
  expect_close(net->named_parameters(), train_alone(way.always_extra)->named_parameters(), bound);
}

RANKS_TEST(CudaDdp, EqualsOneProcess, Ranks(1, 2, 3), Backends("nccl")) { expect_same_training(world(), {}); }

RANKS_TEST(CudaDdp, EqualsOneProcessOnTwoMachines, Ranks(4), Backends("hierarchical+nccl")) {
  expect_same_training(world(), {});
}

// A reduction that is late shows whether anybody reads its bucket before it is done.
RANKS_TEST(CudaDdp, WaitsForLateReductions, Ranks(2), Backends("nccl"),
           Variable("NCCL_STAND_IN",
                    "late:all_reduce:2:*:50,late:all_reduce:9:0:50,late:all_reduce:16:*:50")) {
  expect_same_training(world(), {.set_to_none = false});
}

// The whole training on a stream of the caller's own, which waits for nothing that is on the default one.
RANKS_TEST(CudaDdp, OnAnotherStream, Ranks(2), Backends("nccl"),
           Variable("NCCL_STAND_IN", "late:all_reduce:2:*:50,late:all_reduce:9:0:50")) {
  const c10::impl::VirtualGuardImpl cuda(at::kCUDA);
  const c10::Stream usual = cuda.exchangeStream(cuda.getStreamFromGlobalPool(gpu_of(world())));
  expect_same_training(world(), {});
  cuda.exchangeStream(usual);
}

RANKS_TEST(CudaDdp, ZeroedGradients, Ranks(2), Backends("nccl")) {
  expect_same_training(world(), {.set_to_none = false});
}

RANKS_TEST(CudaDdp, UnusedParameters, Ranks(2, 3), Backends("nccl")) {
  expect_same_training(world(), {.options = {.find_unused_parameters = true}, .always_extra = false});
}

RANKS_TEST(CudaDdp, StaticGraph, Ranks(2), Backends("nccl")) {
  expect_same_training(world(), {.options = {.static_graph = true}});
}

RANKS_TEST(CudaDdp, DeviceIds, Ranks(2), Backends("nccl")) {
  expect_same_training(world(), {.options = {.device_ids = {world().backend().device_index()}}});
  Net net = make_net(0);
  net->to(gpu_of(world()));
  EXPECT_THAT([&] { DistributedDataParallel(net, {.process_group = world(), .device_ids = {3}}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("device_ids names GPU 3, and the model is on cuda:")));
}

RANKS_TEST(CudaDdp, HooksThatRound, Ranks(2), Backends("nccl")) {
  expect_same_training(world(), {.hook = "allreduce"});
  expect_same_training(world(), {.hook = "fp16_compress"}, 1e-2);
  expect_same_training(world(), {.hook = "bf16_compress"}, 5e-2);
  expect_same_training(world(), {.hook = "int8"}, 5e-2);
}

// Each rank's gradients are the same here, so that what is left out is left out everywhere, and error
// feedback brings it later.
RANKS_TEST(CudaDdp, HooksWithErrorFeedback, Ranks(2), Backends("nccl")) {
  for (const char* const name : {"powerSGD", "topk"}) {
    const auto on = [&](at::Device device) {
      const at::Tensor w =
          torch::zeros({8, 30}, at::TensorOptions(at::kFloat).device(device).requires_grad(true));
      const at::Tensor slopes = torch::arange(240, at::kFloat).view({8, 30}).to(device);
      DistributedDataParallel ddp({{"w", w}}, {}, {.process_group = world()});
      ddp.register_comm_hook(name);
      at::Tensor sum = torch::zeros({8, 30});
      for (int step = 0; step < 6; ++step) {
        w.mutable_grad().reset();
        ddp.forward([&] { return (w * slopes).sum(); }).backward();
        sum += w.grad().cpu();
      }
      return sum;
    };
    const at::Tensor gpu = on(gpu_of(world()));
    EXPECT_TRUE(gpu.allclose(on(at::kCPU), 1e-4, 1e-2)) << name;
    EXPECT_GT(gpu.max().item<float>(), 0) << name;
  }
}

RANKS_TEST(CudaDdp, AccumulatesWithoutSync, Ranks(2, 3), Backends("nccl")) {
  Net net = make_net(0);
  Net alone = make_net(0);
  net->to(gpu_of(world()));
  DistributedDataParallel ddp(net, {.process_group = world()});
  for (int round = 0; round < 2; ++round) {
    ddp.module()->zero_grad();
    alone->zero_grad();
    for (int step = 0; step < 3; ++step) {
      const Batch whole = Batch::make(3 * round + step);
      torch::cross_entropy_loss(alone->forward(whole.data), whole.target).backward();
      const Batch mine = whole.share(world());
      const auto pass = [&] { torch::cross_entropy_loss(ddp->forward(mine.data), mine.target).backward(); };
      if (step < 2) {
        const auto guard = ddp.no_sync();
        pass();
      } else {
        pass();
      }
    }
    for (const auto& item : alone->named_parameters())
      EXPECT_TRUE(net->named_parameters()[item.key()].grad().cpu().allclose(item.value().grad(), 1e-9, 1e-12))
          << item.key();
  }
}

RANKS_TEST(CudaDdp, BuffersAreRankZeros, Ranks(2, 3), Backends("nccl")) {
  Net net = make_net(0, /*normalises=*/true);
  net->to(gpu_of(world()));
  DistributedDataParallel ddp(net, {.process_group = world()});
  for (int step = 0; step < 3; ++step) (void)ddp->forward(Batch::make(step).share(world()).data);
  // A forward of rank 0's own data on rank 0's buffers; so rank 0 alone is not changed by others.
  Net alone = make_net(0, true);
  for (int step = 0; step < 3; ++step)
    (void)alone->forward(Batch::make(step).data.narrow(0, 0, BATCH / size()));
  const at::Tensor mean = net->norm->running_mean.clone();
  broadcast(mean, 0, world());
  EXPECT_TRUE(mean.cpu().allclose(alone->norm->running_mean, 1e-9, 1e-12));
}

RANKS_TEST(CudaDdp, JoinsUnevenInputs, Ranks(2, 3), Backends("nccl")) {
  const at::Tensor w =
      torch::zeros({3}, at::TensorOptions(at::kDouble).device(gpu_of(world())).requires_grad(true));
  DistributedDataParallel ddp({{"w", w}}, {}, {.process_group = world()});
  torch::optim::SGD optimizer({w}, 1.0);
  join({&ddp}, [&] {
    for (int step = 0; step < 2 + rank(); ++step) {
      optimizer.zero_grad();
      ddp.forward([&] { return w.sum() * (1.0 + rank()); }).backward();
      optimizer.step();
    }
  });
  double expected = 0;  // rank r contributes 1 + r in each of its 2 + r steps
  for (int r = 0; r < size(); ++r) expected -= (2.0 + r) * (1.0 + r) / size();
  EXPECT_TRUE(w.detach().cpu().allclose(torch::full({3}, expected, at::kDouble), 1e-12));
}

// A generator and a discriminator: two wrappers, and backward passes of one through the other.
RANKS_TEST(CudaDdp, TwoModelsAtOnce, Ranks(2, 3), Backends("nccl")) {
  const auto train = [](torch::nn::Linear& generator, torch::nn::Linear& judge, const auto& make,
                        const auto& score, const at::Tensor& noise) {
    torch::optim::SGD makers(generator->parameters(), 0.1);
    torch::optim::SGD judges(judge->parameters(), 0.1);
    for (int step = 0; step < 4; ++step) {
      judges.zero_grad();
      score(make(noise).detach()).square().mean().backward();
      judges.step();
      makers.zero_grad();
      (score(make(noise)) - 1).square().mean().backward();
      makers.step();
    }
  };
  const auto net = [](int seed, int in, int out) {
    torch::manual_seed(seed);
    torch::nn::Linear made(in, out);
    made->to(at::kDouble);
    return made;
  };
  const at::Tensor noise = torch::linspace(-2, 2, 6 * 4, at::kDouble).view({6, 4});
  torch::nn::Linear alone = net(1, 4, 3);
  torch::nn::Linear alone_judge = net(2, 3, 1);
  train(
      alone, alone_judge, [&](const auto& x) { return alone->forward(x); },
      [&](const auto& x) { return alone_judge->forward(x); }, noise);

  torch::nn::Linear generator = net(1, 4, 3);
  torch::nn::Linear judge = net(2, 3, 1);
  generator->to(gpu_of(world()));
  judge->to(gpu_of(world()));
  DistributedDataParallel making(generator, {.process_group = world()});
  DistributedDataParallel judging(judge, {.process_group = world()});
  train(
      generator, judge, [&](const auto& x) { return making->forward(x); },
      [&](const auto& x) { return judging->forward(x); },
      noise.narrow(0, rank() * (6 / size()), 6 / size()).to(gpu_of(world())));
  expect_close(generator->named_parameters(), alone->named_parameters(), EXACT);
  expect_close(judge->named_parameters(), alone_judge->named_parameters(), EXACT);
}

RANKS_TEST(CudaDdp, ComplexParameters, Ranks(2, 3), Backends("nccl")) {
  const at::Tensor w =
      torch::zeros({3}, at::TensorOptions(at::kComplexDouble).device(gpu_of(world())).requires_grad(true));
  DistributedDataParallel ddp({{"w", w}}, {}, {.process_group = world()});
  at::real(ddp.forward([&] { return (w * c10::complex<double>(1.0 + rank(), -1.0)).sum(); })).backward();
  const auto mean = c10::complex<double>(1 + (size() - 1) / 2.0, 1);  // of the conjugates
  EXPECT_TRUE(w.grad().cpu().allclose(at::full({3}, mean, at::kComplexDouble)));
}

RANKS_TEST(CudaDdp, SparseGradientsAreRefused, Ranks(2), Backends("nccl")) {
  torch::nn::Embedding table(torch::nn::EmbeddingOptions(10, 4).sparse(true));
  table->to(gpu_of(world()));
  EXPECT_THAT([&] { DistributedDataParallel(table, {.process_group = world()}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("\"weight\" has sparse gradients and is on cuda:")));
}

RANKS_TEST(CudaDdp, TellsItsTimes, Ranks(2), Backends("nccl")) {
  Net net = make_net(0);
  net->to(gpu_of(world()));
  DistributedDataParallel ddp(net, {.process_group = world()});
  for (int step = 0; step < 3; ++step) {
    const Batch batch = Batch::make(step).share(world());
    torch::cross_entropy_loss(ddp->forward(batch.data), batch.target).backward();
  }
  std::size_t bytes = 0;
  for (const at::Tensor& parameter : net->parameters()) bytes += parameter.nbytes();
  EXPECT_GE(ddp.stats().bytes_sent, 3 * bytes);
  EXPECT_LE(ddp.stats().bytes_sent, 3 * (bytes + net->parameters().size() * 64));  // and gaps between them
  EXPECT_THAT(to_string(ddp.compare_ranks()), HasSubstr("rank"));
}

RANKS_TEST(CudaDdp, ModelsThatDiffer, Ranks(2), Backends("nccl")) {
  const auto options = at::TensorOptions(gpu_of(world())).requires_grad(true);
  const at::Tensor w = torch::zeros({3 + rank()}, options);
  EXPECT_THAT(
      [&] {
        DistributedDataParallel<void>({{"w", w}}, {}, {.process_group = world()});
      },
      ThrowsMessage<Mismatch>(HasSubstr("[3]")));
}

RANKS_TEST(CudaDdp, AModelOnTwoDevices, Ranks(2), Backends("nccl")) {
  const at::Tensor on_gpu = torch::zeros({3}, at::TensorOptions(gpu_of(world())).requires_grad(true));
  const at::Tensor on_host = torch::zeros({3}, at::TensorOptions().requires_grad(true));
  EXPECT_THAT(
      [&] {
        DistributedDataParallel<void>({{"a", on_gpu}, {"b", on_host}}, {}, {.process_group = world()});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("a model is on one device")));
}

// Backward waits for no GPU, so its peers may have returned from it before it dies: then the error is the
// next one's.
RANKS_TEST(CudaDdp, ADeadRankSurfacesFromBackward, Ranks(3), Backends("nccl"), Dies({2})) {
  Net net = make_net(0);
  net->to(gpu_of(world()));
  DistributedDataParallel ddp(net, {.process_group = world()});
  const Batch batch = Batch::make(0).share(world());
  const auto step = [&] {
    torch::cross_entropy_loss(ddp->forward(batch.data), batch.target).backward();
    net->out->weight.grad().cpu();
  };
  step();
  if (rank() == 2) die();
  EXPECT_THAT(
      [&] {
        step();
        step();
      },
      ThrowsMessage<PeerLost>(HasSubstr("rank 2")));
}

RANKS_TEST(CudaDdp, ARankThatDiesAfterItsPeersBackwardFreesTheirGpus, Ranks(3), Backends("nccl"), Dies({2})) {
  Net net = make_net(0);
  net->to(gpu_of(world()));
  DistributedDataParallel ddp(net, {.process_group = world()});
  const Batch batch = Batch::make(0).share(world());
  const auto backward = [&] { torch::cross_entropy_loss(ddp->forward(batch.data), batch.target).backward(); };
  backward();
  if (rank() != 2) EXPECT_NO_THROW(backward()) << "the host waits for no rank";
  barrier(world());  // of the hosts
  if (rank() == 2) die();
  net->out->weight.grad().cpu();  // ends, and has no meaning
  EXPECT_THAT(backward, ThrowsMessage<PeerLost>(HasSubstr("rank 2")));
}

}  // namespace
}  // namespace lockstep::cuda_tests
