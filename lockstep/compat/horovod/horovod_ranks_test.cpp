// Horovod's verbs on tensors, its process sets and objects, against formulas.
#include "lockstep/compat/horovod/horovod.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/job/job.h"
#include "testing/ranks.h"

namespace lockstep::compat::horovod {
namespace horovod_ranks_test {
namespace {

namespace hvd = lockstep::compat::horovod;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && at::equal(a, b);
}

void check_reductions(int rank, int size) {
  for (const auto type :
       {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kInt, at::kLong, at::kByte}) {
    const double total = size * (size + 1) / 2.0;
    const at::Tensor x = at::full({17, 2}, rank + 1, type);
    EXPECT_TRUE(same(hvd::allreduce(x, {.op = hvd::Sum}), at::full({17, 2}, total, type)));
    EXPECT_TRUE(same(hvd::allreduce(x), at::full({17, 2}, total / size, at::kDouble).to(type)));
    EXPECT_TRUE(same(x, at::full({17, 2}, rank + 1, type)));
    hvd::allreduce_(x, {.name = "in place", .op = hvd::Max});
    EXPECT_TRUE(same(x, at::full({17, 2}, size, type)));
  }
  const at::Tensor x = at::full({4, 6}, rank + 1.0).slice(1, 0, 6, 2);  // not contiguous
  hvd::allreduce_(x, {.op = hvd::Sum, .prescale_factor = 0.5, .postscale_factor = 4});
  EXPECT_TRUE(same(x, at::full({4, 3}, size * (size + 1.0))));
  const at::Tensor y = at::full({3}, 0.5F);
  hvd::allreduce_(y, {.op = hvd::Sum, .compression = hvd::Compression::fp16});
  EXPECT_TRUE(same(y, at::full({3}, 0.5F * static_cast<float>(size))));
  const auto pair = hvd::grouped_allreduce({y, at::ones({2}, at::kLong)}, {.name = "pair", .op = hvd::Min});
  EXPECT_TRUE(same(pair[1], at::ones({2}, at::kLong)));
}

void check_other_verbs(int rank, int size) {
  std::vector<at::Tensor> rows;
  for (int r = 0; r < size; ++r) rows.push_back(at::full({r, 2}, r));
  EXPECT_TRUE(same(hvd::allgather(rows[static_cast<std::size_t>(rank)]), at::cat(rows)));
  EXPECT_TRUE(same(hvd::broadcast(at::full({3}, rank), size - 1), at::full({3}, size - 1)));
  std::vector<std::int64_t> splits;
  for (int r = 0; r < size; ++r) splits.push_back(r);
  const auto [received, counts] = hvd::alltoall(at::full({size * (size - 1) / 2}, rank), splits);
  EXPECT_TRUE(same(received, at::arange(size).repeat_interleave(rank)));
  EXPECT_THAT(counts, Each(rank));
  EXPECT_TRUE(same(hvd::alltoall(at::arange(size)), at::full({size}, rank, at::kLong)));
  const int first = rank == 0 ? 0 : 2 * rank + 1;
  const at::Tensor mine = at::arange(first, first + (rank == 0 ? 3 : 2), at::kFloat);
  EXPECT_TRUE(same(hvd::reducescatter(at::arange(2 * size + 1, at::kFloat), {.op = hvd::Sum}), mine * size));
  EXPECT_EQ(hvd::broadcast_object({{"lr", rank}}, size - 1), (nlohmann::json{{"lr", size - 1}}));
  const auto all = hvd::allgather_object(std::string(static_cast<std::size_t>(rank), 'x'), {.name = "words"});
  for (int r = 0; r < size; ++r)
    EXPECT_EQ(all[static_cast<std::size_t>(r)], std::string(static_cast<std::size_t>(r), 'x'));
}

RANKS_TEST(HorovodVerbs, AreTheirFormulas, Ranks(1, 2, 3, 4), Backends("shm", "tcp")) {
  hvd::init();
  EXPECT_EQ(hvd::rank(), rank());
  EXPECT_EQ(hvd::size(), size());
  check_reductions(rank(), size());
  check_other_verbs(rank(), size());
  hvd::barrier();
  const int last = hvd::join();
  EXPECT_TRUE(same(hvd::allgather(at::full({1}, last)), at::full({size()}, last)));
  hvd::shutdown();
  EXPECT_THAT([] { hvd::rank(); }, ThrowsMessage<InvalidArgument>(HasSubstr("call init() first")));
  EXPECT_TRUE(lockstep::is_initialized());  // init() found the job there
}

RANKS_TEST(HorovodVerbs, HandlesAndMistakes, Ranks(2, 3), WithoutGroup()) {
  const hvd::ProcessSet first({0});
  EXPECT_THAT([&] { (void)first.process_set_id(); },
              ThrowsMessage<InvalidArgument>(HasSubstr("has not been added")));
  hvd::init({first});
  EXPECT_EQ(first.included(), rank() == 0);
  hvd::Handle handle = hvd::allreduce_async(at::ones({3}), {.name = "x", .op = hvd::Sum});
  EXPECT_TRUE(same(hvd::synchronize(handle), at::full({3}, static_cast<float>(size()))));
  EXPECT_THAT([&] { handle.synchronize(); },
              ThrowsMessage<InvalidArgument>(HasSubstr("synchronized before")));
  EXPECT_THAT(
      [&] { hvd::allreduce(at::ones({rank() == 0 ? 2 : 3}), {.name = "y"}); },
      ThrowsMessage<Mismatch>(HasSubstr(
          "allreduce \"allreduce.y\": the ranks disagree about shape: rank 0 gave allreduce of float32[2]")));
  if (rank() == 0) {
    EXPECT_TRUE(same(hvd::allreduce(at::ones({2}), {.process_set = first}), at::ones({2})));
  } else {
    EXPECT_THAT(
        [&] { hvd::allreduce(at::ones({2}), {.process_set = first}); },
        ThrowsMessage<InvalidArgument>(HasSubstr("is not in process set 1, whose rank 0 alone may call it")));
  }
  const hvd::ProcessSet last = hvd::add_process_set({size() - 1});
  EXPECT_EQ(last.process_set_id(), 2);
  hvd::remove_process_set(last);
  hvd::shutdown();
  EXPECT_FALSE(lockstep::is_initialized());
  hvd::init();
  EXPECT_TRUE(same(hvd::allreduce(at::ones({3})), at::ones({3})));
}

}  // namespace
}  // namespace horovod_ranks_test
}  // namespace lockstep::compat::horovod
