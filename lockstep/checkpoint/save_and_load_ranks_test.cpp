// What is saved by some ranks and loaded by others is what was saved.
#include <gmock/gmock.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/load_checkpoint.h"
#include "lockstep/checkpoint/save_checkpoint.h"
#include "lockstep/data/distributed_sampler.h"
#include "lockstep/formats/checkpoint_folder.h"
#include "lockstep/job/groups.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/lr_scheduler.h"
#include "lockstep/tensor/dtype_words.h"
#include "testing/ranks.h"
#include "testing/shared_folder.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::SharedFolder;

struct SmallNetImpl : torch::nn::Module {
  SmallNetImpl()
      : conv(register_module("conv", torch::nn::Conv2d(1, 3, 3))),
        bn(register_module("bn", torch::nn::BatchNorm2d(3))),
        fc(register_module("fc", torch::nn::Linear(12, 5))) {}
  at::Tensor forward(const at::Tensor& x) { return fc(bn(conv(x)).flatten(1)); }

  torch::nn::Conv2d conv;
  torch::nn::BatchNorm2d bn;
  torch::nn::Linear fc;
};
TORCH_MODULE(SmallNet);

// A training of one rank, of which all state is in `state`.
template <typename Optimizer, typename Options> struct Training {
  explicit Training(const Options& options, const ProcessGroup& group)
      : optimizer(net->parameters(), options),
        scheduler(optimizer, 10),
        sampler(100, {.num_replicas = group.size(), .rank = group.rank()}) {
    state.add("model", net)
        .add("optimizer", optimizer)
        .add("scheduler", scheduler)
        .add("sampler", sampler)
        .add_value("losses", losses)
        .add_each_rank_value("mine", mine)
        .add_random_state();
  }

  // Every rank draws the same data, so that the models stay equal without communication; dropout draws a
  // rank's own.
  void step(int number) {
    net->train();
    optimizer.zero_grad();
    const at::Tensor x = torch::arange(4 * 16, torch::kFloat).view({4, 1, 4, 4}).sin() * (number + 1);
    const at::Tensor loss = net->forward(x).pow(2).mean();
    loss.backward();
    optimizer.step();
    scheduler.step();
    losses.push_back(loss.item<double>());
    mine += torch::rand({}).item<double>();
    sampler.advance(2);
  }

  SmallNet net;
  Optimizer optimizer;
  optim::CosineAnnealingLR scheduler;
  DistributedSampler sampler;
  std::vector<double> losses;
  double mine = 0;
  CheckpointState state;
};
using Ours = Training<optim::AdamW, optim::AdamWOptions>;
using Torchs = Training<torch::optim::SGD, torch::optim::SGDOptions>;

template <typename Some> void expect_same(Some& one, Some& other) {
  const auto mine = one.net->named_parameters();
  for (const auto& item : other.net->named_parameters())
    EXPECT_TRUE(item.value().equal(mine[item.key()])) << item.key();
  const auto buffers = one.net->named_buffers();
  for (const auto& item : other.net->named_buffers())
    EXPECT_TRUE(item.value().equal(buffers[item.key()])) << item.key();
  EXPECT_EQ(one.losses, other.losses);
  EXPECT_EQ(one.mine, other.mine);
  EXPECT_EQ(one.scheduler.get_last_lr(), other.scheduler.get_last_lr());
  EXPECT_EQ(one.sampler.state(), other.sampler.state());
}

// Six steps at one go, and three, a checkpoint, and three in fresh objects: the same bits.
template <typename Some, typename Options>
void expect_resume(const Options& options, const ProcessGroup& group) {
  const SharedFolder folder(group);
  const auto begin = [&] {
    torch::manual_seed(group.rank());
    auto training = std::make_unique<Some>(options, group);
    torch::manual_seed(7);  // equal weights
    for (auto& p : training->net->parameters()) p.data().normal_();
    torch::manual_seed(group.rank());
    return training;
  };
  auto whole = begin();
  for (int i = 0; i < 6; ++i) whole->step(i);
  auto first = begin();
  for (int i = 0; i < 3; ++i) first->step(i);
  const std::string path = save_checkpoint(folder.path(), first->state, {.step = 3, .process_group = group});
  EXPECT_EQ(path, folder / "step-000000000003");
  auto second = begin();
  torch::rand({5});
  const auto loaded = load_checkpoint(folder.path(), second->state, {.process_group = group});
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->step, 3);
  EXPECT_EQ(loaded->saved_ranks, group.size());
  EXPECT_THAT(loaded->notes, IsEmpty());
  expect_same(*first, *second);
  for (int i = 3; i < 6; ++i) second->step(i);
  expect_same(*whole, *second);
}

RANKS_TEST(Checkpoint, OfARunGoesOnWithTheSameBits, Ranks(1, 2, 3, 4),
           Backends("shm", "tcp", "hierarchical")) {
  expect_resume<Ours>(optim::AdamWOptions(0.01).weight_decay(0.1), world());
  expect_resume<Torchs>(torch::optim::SGDOptions(0.01).momentum(0.9), world());
}

// Tensors of every dtype and of odd shapes and strides, some of them sharing memory.
NamedTensors odd_tensors(std::uint64_t seed) {
  torch::manual_seed(seed);
  NamedTensors tensors;
  const at::ScalarType dtypes[] = {
      at::kDouble,      at::kFloat,         at::kHalf,        at::kBFloat16,      at::kLong,
      at::kInt,         at::kShort,         at::kChar,        at::kByte,          at::kBool,
      at::kUInt16,      at::kUInt32,        at::kUInt64,      at::kComplexFloat,  at::kComplexDouble,
      at::kComplexHalf, at::kFloat8_e4m3fn, at::kFloat8_e5m2, at::kFloat8_e8m0fnu};
  const std::vector<std::vector<std::int64_t>> shapes = {{},        {1},    {0},       {7},
                                                         {3, 0, 2}, {5, 4}, {1, 1, 9}, {2, 3, 4, 5}};
  std::size_t number = 0;
  for (const at::ScalarType dtype : dtypes)
    for (const auto& shape : shapes) {
      std::int64_t bytes = static_cast<std::int64_t>(elementSize(dtype));
      for (const std::int64_t size : shape) bytes *= size;
      at::Tensor raw = torch::randint(0, dtype == at::kBool ? 2 : 256, {bytes}, at::kByte);
      tensors.emplace_back(str("t", number++), raw.view(dtype).view(shape));
    }
  const at::Tensor base = torch::randn({6, 8});
  tensors.emplace_back("transposed", base.t());
  tensors.emplace_back("rows", base.slice(0, 1, 6, 2));
  tensors.emplace_back("base", base);
  tensors.emplace_back("tied", base);
  tensors.emplace_back("expanded", torch::randn({3, 1}).expand({3, 4}).clone());
  tensors.emplace_back("channels_last",
                       torch::randn({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast));
  tensors.emplace_back("conjugate", torch::randn({3}, at::kComplexFloat).conj());
  return tensors;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  if (a.numel() == 0) return true;
  const auto bytes = [](const at::Tensor& t) {
    return t.resolve_conj().resolve_neg().contiguous().view({-1}).view(at::kByte);
  };
  return bytes(a).equal(bytes(b));
}

void add_all(CheckpointState& state, const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) state.add(name, tensor);
}

RANKS_TEST(Checkpoint, OfAnyTensorsIsLoadedByAnyNumberOfRanks, Ranks(4), Backends("shm", "tcp")) {
  std::vector<ProcessGroup> groups;
  for (int n = 1; n <= 4; ++n) {
    std::vector<int> ranks(static_cast<std::size_t>(n));
    std::iota(ranks.begin(), ranks.end(), 0);
    groups.push_back(new_group(ranks));
  }
  const SharedFolder folder(world());
  for (const ProcessGroup& savers : groups)
    for (const ProcessGroup& loaders : groups) {
      const std::int64_t step = savers.size() * 10 + loaders.size();
      const NamedTensors saved = odd_tensors(static_cast<std::uint64_t>(step));
      CheckpointState before;
      add_all(before, saved);
      if (savers.is_member())
        save_checkpoint(folder.path(), before, {.step = step, .process_group = savers, .durable = false});
      if (!loaders.is_member()) continue;
      const NamedTensors loaded = odd_tensors(99);
      CheckpointState after;
      add_all(after, loaded);
      EXPECT_EQ(load_checkpoint(folder.path(), after, {.step = step, .process_group = loaders})->saved_ranks,
                savers.size());
      for (std::size_t i = 0; i < saved.size(); ++i)
        if (saved[i].first != "rows" &&
            saved[i].first != "transposed")  // filled before "base", whose memory they are
          EXPECT_TRUE(same_bits(saved[i].second, loaded[i].second))
              << saved[i].first << ", " << savers.size() << " to " << loaders.size();
    }
}

// Columns, rows, or flat ranges of one [6, 8] tensor by N ranks, loaded as other parts by M.
RANKS_TEST(Checkpoint, CutsShardsAnew, Ranks(1, 2, 3, 4), Backends("shm", "tcp")) {
  const SharedFolder folder(world());
  const at::Tensor whole = torch::arange(48, torch::kFloat).view({6, 8});
  const auto begin = [&](std::int64_t of) { return of * rank() / size(); };
  const auto end = [&](std::int64_t of) { return of * (rank() + 1) / size(); };
  const at::Tensor columns = whole.slice(1, begin(8), end(8)).clone();
  CheckpointState by_columns;
  by_columns.add_shard("w", {6, 8}, {0, begin(8)}, columns);
  save_checkpoint(folder.path(), by_columns, {.step = 1, .process_group = world()});

  const at::Tensor rows = torch::zeros({end(6) - begin(6), 8}, at::kDouble);
  CheckpointState by_rows;
  by_rows.add_shard("w", {6, 8}, {begin(6), 0}, rows);
  EXPECT_THAT(
      [&] { load_checkpoint(folder.path(), by_rows, {.process_group = world()}); },
      ::testing::ThrowsMessage<InvalidArgument>(HasSubstr("is F32 in the checkpoint and F64 in the state")));
  load_checkpoint(folder.path(), by_rows, {.strict = false, .process_group = world()});
  EXPECT_TRUE(rows.equal(whole.slice(0, begin(6), end(6)).to(at::kDouble)));

  const at::Tensor all = torch::zeros({8, 6}).t();
  CheckpointState in_one;
  in_one.add("w", all);
  load_checkpoint(folder.path(), in_one, {.process_group = world()});
  EXPECT_TRUE(all.equal(whole));
}

RANKS_TEST(Checkpoint, HoldsBuffersThatDifferForEachRank, Ranks(1, 2, 3, 4)) {
  const SharedFolder folder(world());
  SmallNet net, other;
  torch::NoGradGuard no_grad;
  for (auto& p : net->parameters()) p.fill_(1);
  net->bn->running_mean.fill_(rank() + 1);
  CheckpointState state;
  state.add("model", net);
  save_checkpoint(folder.path(), state, {.step = 1});
  CheckpointState loaded;
  loaded.add("model", other);
  load_checkpoint(folder.path(), loaded);
  EXPECT_TRUE(other->bn->running_mean.equal(torch::full({3}, rank() + 1.0F)));
  EXPECT_TRUE(other->bn->running_var.equal(torch::ones({3})));
  EXPECT_TRUE(other->fc->bias.equal(torch::ones({5})));
  // Another number of ranks gets rank 0's.
  const ProcessGroup alone = new_group({size() - 1});
  if (size() > 1 && alone.is_member()) {
    load_checkpoint(folder.path(), loaded, {.process_group = alone});
    EXPECT_TRUE(other->bn->running_mean.equal(torch::ones({3})));
  }
}

RANKS_TEST(Checkpoint, OfMoreOrFewerRanksSaysWhatCannotBeAsItWas, Ranks(3)) {
  const SharedFolder folder(world());
  const ProcessGroup pair = new_group({0, 1});
  double mine = rank() + 0.5;
  DistributedSampler sampler(100, {.num_replicas = 2, .rank = std::min(rank(), 1)});
  sampler.advance(5);
  CheckpointState saved;
  saved.add("sampler", sampler).add_each_rank_value("mine", mine);
  if (pair.is_member()) save_checkpoint(folder.path(), saved, {.step = 1, .process_group = pair});
  comm::barrier(world());
  double loaded_mine = -1;
  DistributedSampler other(100, {.num_replicas = 3, .rank = rank()});
  CheckpointState state;
  state.add("sampler", other).add_each_rank_value("mine", loaded_mine);
  const auto loaded = load_checkpoint(folder.path(), state);
  EXPECT_EQ(loaded_mine, rank() < 2 ? rank() + 0.5 : -1);
  EXPECT_EQ(other.state().position, 3);  // of 10 consumed items, 9 by three ranks
  EXPECT_THAT(loaded->notes,
              ElementsAre(HasSubstr("\"mine\" is each rank's own"), HasSubstr("1 items come a second time")));
}

// A tensor that is filled in place, and a value beside it.
class Clock : public CheckpointItem {
 public:
  std::string_view kind() const override { return "clock"; }
  ItemContents contents() override {
    return {.tensors = {{"hands", hands}}, .value = nlohmann::json(alarm), .in_place = true};
  }
  void load(const LoadedItem& loaded) override { loaded.value->get_to(alarm); }

  at::Tensor hands = torch::zeros({2});
  int alarm = 0;
};

RANKS_TEST(Checkpoint, OfAnItemFilledInPlaceLoadsItsValueToo, Ranks(1, 2)) {
  const SharedFolder folder(world());
  const auto clock = std::make_shared<Clock>();
  CheckpointState state;
  state.add_item("clock", clock);
  clock->hands.fill_(7);
  clock->alarm = 6;
  save_checkpoint(folder.path(), state, {.step = 1});
  clock->hands.zero_();
  clock->alarm = 0;
  load_checkpoint(folder.path(), state);
  EXPECT_TRUE(clock->hands.equal(torch::full({2}, 7.0F)));
  EXPECT_EQ(clock->alarm, 6);
}

RANKS_TEST(Checkpoint, OfTheSameStepIsReplacedAndOldOnesGo, Ranks(1, 2)) {
  const SharedFolder folder(world());
  int value = 0;
  CheckpointState state;
  state.add_value("value", value);
  for (const int step : {100, 200, 300, 300}) {
    ++value;
    save_checkpoint(folder.path(), state, {.step = step, .keep_last = 2, .keep_every = 1000});
  }
  value = 0;
  EXPECT_EQ(load_checkpoint(folder.path(), state)->step, 300);
  EXPECT_EQ(value, 4);
  EXPECT_EQ(load_checkpoint(folder.path(), state, {.step = 200})->step, 200);
  EXPECT_EQ(value, 2);
  EXPECT_FALSE(load_checkpoint(folder.path(), state, {.step = 100, .missing_ok = true}));
  EXPECT_THAT([&] { load_checkpoint(folder.path(), state, {.step = 100}); },
              ::testing::ThrowsMessage<InvalidArgument>(HasSubstr("no checkpoint of step 100")));
  EXPECT_EQ(load_checkpoint(folder / "step-000000000200", state)->step, 200);
}

}  // namespace
}  // namespace lockstep
