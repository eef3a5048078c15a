// Collectives and messages of tensors in a GPU's memory, over backend nccl: formulas.
#include "lockstep/tensor/collectives.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <future>

#include "lockstep/base/error.h"
#include "lockstep/job/groups.h"
#include "lockstep/tensor/functional.h"
#include "lockstep/train/mean.h"
#include "testing/ranks.h"
#include "tests/cuda/launch.h"
#include "tests/cuda/training.h"

namespace lockstep::cuda_tests {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::int64_t COUNT = 70'001;  // in several pieces

// Elements that say whose they are: of rank r in round k, 100 r + k.
at::Tensor filled(const ProcessGroup& group, double value, std::int64_t count = COUNT) {
  return at::full({count}, value, at::TensorOptions(at::kDouble).device(gpu_of(group)));
}

void expect_all(const at::Tensor& tensor, double value) {
  EXPECT_TRUE(tensor.is_cuda());
  const at::Tensor host = tensor.cpu();
  EXPECT_EQ(host.min().item<double>(), value);
  EXPECT_EQ(host.max().item<double>(), value);
}

double sum_of_ranks(int size) { return size * (size - 1) / 2.0; }

RANKS_TEST(CudaCollectives, EachVerb, Ranks(1, 2, 3), Backends("nccl")) {
  at::Tensor x = filled(world(), rank());
  all_reduce(x, ReduceOp::SUM, world());
  expect_all(x, sum_of_ranks(size()));
  all_reduce(x.fill_(rank()), ReduceOp::MAX, world());
  expect_all(x, size() - 1);
  broadcast(x.fill_(rank() + 5), size() - 1, world());
  expect_all(x, size() + 4);
  reduce(x.fill_(rank()), 0, ReduceOp::SUM, world());
  if (rank() == 0) expect_all(x, sum_of_ranks(size()));

  const at::Tensor all = filled(world(), -1, size() * COUNT);
  all_gather_into_tensor(all, x.fill_(rank()), world());
  for (int r = 0; r < size(); ++r) expect_all(all.narrow(0, r * COUNT, COUNT), r);
  reduce_scatter_tensor(x, all, ReduceOp::SUM, world());
  expect_all(x, rank() * size());
  const at::Tensor received = filled(world(), -1, size() * COUNT);
  for (int r = 0; r < size(); ++r) all.narrow(0, r * COUNT, COUNT).fill_(10 * rank() + r);
  all_to_all_single(received, all, {}, {}, world());
  for (int r = 0; r < size(); ++r) expect_all(received.narrow(0, r * COUNT, COUNT), 10 * r + rank());
}

RANKS_TEST(CudaCollectives, Lists, Ranks(2, 3), Backends("nccl")) {
  const at::Tensor mine = filled(world(), rank());
  std::vector<at::Tensor> all;
  for (int r = 0; r < size(); ++r) all.push_back(filled(world(), -1));
  all_gather(all, mine, world());
  for (int r = 0; r < size(); ++r) expect_all(all[r], r);
  gather(mine, rank() == 1 ? all : std::vector<at::Tensor>(), 1, world());
  const at::Tensor part = filled(world(), -1);
  for (int r = 0; r < size(); ++r) all[r].fill_(7 * r);
  scatter(part, rank() == 0 ? all : std::vector<at::Tensor>(), 0, world());
  expect_all(part, 7 * rank());
  reduce_scatter(part, all, ReduceOp::SUM, world());
  expect_all(part, 7 * rank() * size());
  all_reduce_coalesced(all, ReduceOp::SUM, world());
  for (int r = 0; r < size(); ++r) expect_all(all[r], 7 * r * size());
}

// What lies in memory in another order than it counts.
RANKS_TEST(CudaCollectives, TransposedAndStridedTensors, Ranks(2), Backends("nccl")) {
  const at::Tensor square = torch::arange(12, at::kDouble).view({3, 4}).to(gpu_of(world()));
  const at::Tensor expected = (square.cpu() * 2).t();
  const at::Tensor transposed = square.t();
  all_reduce(transposed, ReduceOp::SUM, world());
  EXPECT_TRUE(transposed.cpu().equal(expected));
  const at::Tensor every_other = filled(world(), rank(), 20).as_strided({10}, {2});
  all_reduce(every_other, ReduceOp::SUM, world());
  expect_all(every_other, 1);
}

RANKS_TEST(CudaCollectives, EachDtype, Ranks(2), Backends("nccl")) {
  for (const at::ScalarType type :
       {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kChar, at::kByte, at::kInt, at::kLong}) {
    const at::Tensor x = at::full({33}, rank() + 1, at::TensorOptions(type).device(gpu_of(world())));
    all_reduce(x, ReduceOp::SUM, world());
    EXPECT_TRUE(x.cpu().equal(at::full({33}, 3, type))) << c10::toString(type);
  }
}

RANKS_TEST(CudaCollectives, Messages, Ranks(2, 3), Backends("nccl")) {
  const at::Tensor x = filled(world(), rank());
  const at::Tensor from_left = filled(world(), -1);
  const int right = (rank() + 1) % size();
  const int left = (rank() + size() - 1) % size();
  for (auto& work : batch_isend_irecv({{isend, x, right, world()}, {irecv, from_left, left, world()}}))
    work.wait();
  expect_all(from_left, left);
  if (rank() == 0) send(x.fill_(42), 1, world());
  if (rank() == 1) {
    recv(x, 0, world());
    expect_all(x, 42);
  }
}

// The kernel that writes the input is late, and so may the reduction be: neither is waited for by the host,
// which lets the kernel begin when it has called all that follows. Not in the first round: CUDA loads
// kernels, and NCCL connects ranks, when they are first called, and that may wait for the device.
RANKS_TEST(CudaCollectives, FollowTheCallersStream, Ranks(2), Backends("nccl"),
           Variable("NCCL_STAND_IN", "late:all_reduce:2:*:30,late:all_reduce:4:1:30")) {
  const at::Tensor x = filled(world(), 0);
  const at::Tensor sums = filled(world(), 0);
  for (int k = 0; k < 6; ++k) {
    std::promise<void> may_begin;
    if (k > 0) launch([wait = may_begin.get_future().share()] { wait.wait(); });
    x.fill_(100 * rank() + k);
    Work work = all_reduce(x, ReduceOp::SUM, world(), /*async_op=*/true);
    work.wait();
    sums.add_(x);
    may_begin.set_value();
  }
  expect_all(sums, 6 * 100 + 2 * 15);
}

// Nobody waits for the device before the end, so each call meets the kernel that writes its input, and the
// next kernel its result.
RANKS_TEST(CudaCollectives, ManyInARow, Ranks(2, 3), Backends("nccl")) {
  constexpr int ROUNDS = 150;
  const at::Tensor mine = filled(world(), 0);
  const at::Tensor small = filled(world(), 0, 5);
  const at::Tensor wrong = filled(world(), 0, 1);
  for (int k = 0; k < ROUNDS; ++k) {
    if (rank() == 0) small.fill_(k);
    broadcast(small, 0, world());
    wrong.add_(small.ne(k).sum());
    all_reduce(mine.fill_(rank() + k), ReduceOp::SUM, world());
    wrong.add_(mine.ne(sum_of_ranks(size()) + size() * k).sum());
    small.fill_(-1);
  }
  expect_all(wrong, 0);
}

// A tensor and a Work that are dropped while NCCL still reads: the memory must not become somebody else's.
RANKS_TEST(CudaCollectives, KeepMemoryThatIsDropped, Ranks(2), Backends("nccl"),
           Variable("NCCL_STAND_IN", "late:all_gather:1:*:60,late:all_gather:2:*:30")) {
  std::vector<at::Tensor> results;
  for (int k = 0; k < 3; ++k) {
    results.push_back(filled(world(), -1, size() * COUNT));
    (void)all_gather_into_tensor(results.back(), filled(world(), 100 * rank() + k), world(),
                                 /*async_op=*/true);
    (void)filled(world(), 1e9);  // takes what is free
  }
  all_reduce(filled(world(), 0), ReduceOp::SUM, world());  // behind them
  for (int k = 0; k < 3; ++k)
    for (int r = 0; r < size(); ++r) expect_all(results[k].narrow(0, r * COUNT, COUNT), 100 * r + k);
}

// The sender's part has ended on its device when NCCL has the data. It leaves at once, and the data must
// arrive.
RANKS_TEST(CudaCollectives, ARankThatLeavesHasSentEverything, Ranks(2, 3), Backends("nccl"),
           Variable("NCCL_STAND_IN", "network,late:broadcast:1:0:300")) {
  const at::Tensor x = filled(world(), rank());
  broadcast(x, size() - 1, world());
  expect_all(x, size() - 1);
}

// On a stream of the caller's own, as in a program that overlaps copies with computing.
RANKS_TEST(CudaCollectives, OnAnotherStream, Ranks(2), Backends("nccl"),
           Variable("NCCL_STAND_IN", "late:all_reduce:1:*:30")) {
  const at::Tensor x = filled(world(), rank());
  const c10::impl::VirtualGuardImpl cuda(at::kCUDA);
  cuda.synchronizeStream(cuda.getStream(gpu_of(world())));
  const c10::Stream side = cuda.getStreamFromGlobalPool(gpu_of(world()));
  const c10::Stream before = cuda.exchangeStream(side);
  x.add_(1);
  all_reduce(x, ReduceOp::SUM, world());
  x.mul_(2);
  expect_all(x, 2 * (sum_of_ranks(2) + 2));
  cuda.exchangeStream(before);
}

RANKS_TEST(CudaCollectives, WithGradients, Ranks(2, 3), Backends("nccl")) {
  const at::Tensor x = filled(world(), rank() + 1, 4).requires_grad_(true);
  const at::Tensor y = functional::all_reduce(x, ReduceOp::SUM, world());
  expect_all(y.detach(), sum_of_ranks(size()) + size());
  (y * (rank() + 1)).sum().backward();
  expect_all(x.grad(), sum_of_ranks(size()) + size());  // what all ranks' outputs say
}

RANKS_TEST(CudaCollectives, SubGroups, Ranks(3), Backends("nccl")) {
  const ProcessGroup pair = new_group({0, 2});
  const at::Tensor x = filled(world(), rank());
  all_reduce(x, ReduceOp::SUM, pair);
  expect_all(x, rank() == 1 ? 1 : 2);
}

RANKS_TEST(CudaCollectives, MeanOfAMetric, Ranks(2), Backends("nccl")) {
  expect_all(mean_across_ranks(filled(world(), rank(), 1), world()), 0.5);
}

RANKS_TEST(CudaCollectives, RefuseAnotherDevice, Ranks(2), Backends("nccl"), Devices(4)) {
  const at::Tensor elsewhere = at::zeros({2}, at::Device(at::kCUDA, 3));
  EXPECT_THAT([&] { all_reduce(elsewhere, ReduceOp::SUM, world()); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("the tensor is on cuda:3, and this rank's device in the group is cuda:")));
  EXPECT_THAT([&] { all_gather_into_tensor(at::zeros({4}), filled(world(), 0, 2), world()); },
              ThrowsMessage<InvalidArgument>(HasSubstr("one device")));
}

RANKS_TEST(CudaCollectives, OtherBackendsRefuseIt, Ranks(2), Backends("shm", "tcp")) {
  const at::Tensor x = at::zeros({2}, at::Device(at::kCUDA, 0));
  EXPECT_THAT(
      [&] { all_reduce(x, ReduceOp::SUM, world()); },
      ThrowsMessage<InvalidArgument>(HasSubstr("serves CPU tensors only; use init_process_group(\"nccl\")")));
}

}  // namespace
}  // namespace lockstep::cuda_tests
