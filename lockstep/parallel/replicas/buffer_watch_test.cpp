// Buffers that a model replaces by other tensors, so that DDP no longer synchronises what it uses.
#include "lockstep/parallel/replicas/buffer_watch.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "testing/fake_ddp.h"

namespace lockstep::buffer_watch {
namespace {

using testing::fake_group;
using ::testing::HasSubstr;
using testing::one_bucket;
using ::testing::ThrowsMessage;

struct InnerImpl : torch::nn::Module {
  InnerImpl() {
    running = register_buffer("running", torch::zeros({1}));
    register_buffer("held_by_nobody", torch::zeros({1}));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    if (in_place) {
      running += 1;
    } else {
      running = running + 1;
    }
    return fc(x) + running;
  }
  bool in_place = true;
  torch::Tensor running;
  torch::nn::Linear fc = register_module("fc", torch::nn::Linear(2, 1));
};
TORCH_MODULE(Inner);

struct OuterImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return norm(inner(x)).sum(); }
  Inner inner = register_module("inner", Inner());
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(1));
};
TORCH_MODULE(Outer);

struct BufferWatchTest : ::testing::Test {
  Outer net;
  DistributedDataParallel<OuterImpl> ddp{net, one_bucket(fake_group())};
  torch::Tensor x = torch::ones({4, 2});
};

TEST_F(BufferWatchTest, FindsNothingInBuffersThatChangeInPlace) {
  ddp.check_buffers();
  for (int step = 0; step < 3; ++step) {
    ddp.forward(x).backward();
    ddp.check_buffers();
  }
  EXPECT_EQ(net->inner->running.item<float>(), 3);
}

TEST_F(BufferWatchTest, NamesABufferThatWasAssignedANewTensor) {
  net->inner->in_place = false;
  ddp.check_buffers();
  ddp.forward(x).backward();
  EXPECT_THAT(
      [&] { ddp.check_buffers(); },
      ThrowsMessage<InvalidArgument>(HasSubstr("buffer \"inner.running\" was assigned a new tensor")));
}

TEST_F(BufferWatchTest, AModelThatIsWrappedAgainIsJudgedAnew) {
  ddp.forward(x).backward();
  ddp = DistributedDataParallel(net, one_bucket(fake_group()));
  ddp.forward(x).backward();
  ddp.check_buffers();
  net->inner->in_place = false;
  ddp.forward(x).backward();
  EXPECT_THAT([&] { ddp.check_buffers(); },
              ThrowsMessage<InvalidArgument>(HasSubstr("\"inner.running\" was assigned")));
}

TEST_F(BufferWatchTest, LoadedBuffersAreTheSameTensors) {
  ddp.forward(x).backward();
  std::stringstream file;
  torch::save(net, file);
  torch::load(net, file);
  net->to(at::kDouble);
  net->to(at::kFloat);
  ddp.check_buffers();
  ddp.forward(x).backward();
  ddp.check_buffers();
}

TEST(BufferWatch, NamesABufferOfAListToo) {
  const torch::Tensor w = torch::ones({1}, torch::requires_grad());
  torch::Tensor count = torch::zeros({1});
  DistributedDataParallel ddp(NamedTensors{{"w", w}}, {{"count", count}}, one_bucket(fake_group()));
  ddp.forward([&] { return (w * count).sum(); }).backward();
  ddp.check_buffers();
  count = count + 1;
  EXPECT_THAT([&] { ddp.check_buffers(); },
              ThrowsMessage<InvalidArgument>(HasSubstr("buffer \"count\" was assigned")));
}

}  // namespace
}  // namespace lockstep::buffer_watch
