// What virtual ranks have for themselves, saved by N processes and loaded by M, is exact.
#include "lockstep/parallel/virtual_ranks/virtual_rank_item.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <torch/nn/module.h>

#include <filesystem>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/load_checkpoint.h"
#include "lockstep/checkpoint/save_checkpoint.h"
#include "lockstep/job/job.h"
#include "lockstep/job/virtual_ranks.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/parallel/virtual_ranks/rank_seed.h"
#include "lockstep/parallel/virtual_ranks/virtual_rank_states.h"
#include "lockstep/parallel/virtual_ranks/virtual_ranks.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr int VIRTUAL_RANKS = 4;
constexpr std::uint64_t SEED = 42;

// Its buffers add up what it was given, and how often.
struct Counting : torch::nn::Module {
  Counting() {
    register_parameter("w", w);
    register_buffer("seen", seen);
    register_buffer("count", count);
  }
  at::Tensor forward(const at::Tensor& x) {
    seen.add_(x.detach().sum());
    count.add_(1);
    return w * x.sum();
  }
  at::Tensor w = at::ones({1}, at::TensorOptions(at::kDouble).requires_grad(true));
  at::Tensor seen = at::full({2}, 0.0, at::kDouble);
  at::Tensor count = at::full({}, 0, at::kLong);
};

// A job of the first `processes` of this test's processes; the others look on.
class JobOfSome {
 public:
  JobOfSome(int rank, int processes, std::optional<int> virtual_ranks) {
    static int number = 0;
    path_ = str(std::filesystem::temp_directory_path().string(), "/lockstep-virtual-item-",
                *env("LOCKSTEP_JOB_ID"), '-', ++number);
    is_in_ = rank < processes;
    const InitOptions alone = {.rank = 0, .world_size = 1};
    const InitOptions together = {.init_method = "file://" + path_,
                                  .rank = rank,
                                  .world_size = processes,
                                  .virtual_ranks = virtual_ranks};
    init_process_group(is_in_ ? "auto" : "self", is_in_ ? together : alone);
  }
  ~JobOfSome() {
    if (is_in_ && std::uncaught_exceptions() == 0) barrier();
    if (is_in_ && get_rank() == 0) std::filesystem::remove(path_);
    destroy_process_group();
  }
  JobOfSome(const JobOfSome&) = delete;
  JobOfSome& operator=(const JobOfSome&) = delete;
  explicit operator bool() const { return is_in_; }

 private:
  std::string path_;
  bool is_in_ = false;
};

// One run: a model whose buffers stay each virtual rank's own, and random numbers.
struct Run {
  Run() {
    state.add("model", *net);
    state.add_item("virtual_ranks", virtual_rank_item());
  }
  // One round; what each virtual rank of this process drew.
  std::map<int, at::Tensor> round() {
    std::map<int, at::Tensor> drawn;
    for (const int v : virtual_ranks()) {
      drawn[v] = at::randn({3}, at::kDouble);
      ddp->forward(drawn[v]).backward();
    }
    return drawn;
  }

  std::shared_ptr<Counting> net = std::make_shared<Counting>();
  DistributedDataParallel<Counting> ddp{net, {.broadcast_buffers = false}};
  CheckpointState state;
};

// What a rank of its own draws in the first `rounds` rounds.
std::vector<at::Tensor> draws_of(int virtual_rank, int rounds) {
  const auto generator = at::detail::createCPUGenerator(rank_seed(SEED, virtual_rank));
  std::vector<at::Tensor> draws;
  for (int i = 0; i < rounds; ++i) draws.push_back(at::randn({3}, generator, at::TensorOptions(at::kDouble)));
  return draws;
}

void expect_state(int rounds) {
  const auto states = virtual_rank_states();
  ASSERT_EQ(states.size(), local_virtual_ranks().size());
  for (const VirtualRankState& state : states) {
    at::Tensor seen = at::full({2}, 0.0, at::kDouble);
    for (const at::Tensor& drawn : draws_of(state.virtual_rank, rounds)) seen.add_(drawn.sum());
    int found = 0;
    for (const auto& [name, tensor] : state.tensors) {
      if (name != "model.0.seen" && name != "model.0.count") continue;
      ++found;
      if (name == "model.0.seen")
        EXPECT_TRUE(tensor.equal(seen)) << state.virtual_rank;
      else
        EXPECT_EQ(tensor.item<std::int64_t>(), rounds);
    }
    EXPECT_EQ(found, 2) << "buffers of virtual rank " << state.virtual_rank;
  }
}

void expect_rounds(Run& run, int first, int end) {
  for (int i = first; i < end; ++i)
    for (const auto& [v, drawn] : run.round())
      EXPECT_TRUE(drawn.equal(draws_of(v, i + 1).back())) << "virtual rank " << v << " in round " << i;
}

class Folder {  // of all processes, with and without a job
 public:
  Folder()
      : path_(str(std::filesystem::temp_directory_path().string(), "/lockstep-virtual-checkpoints-",
                  *env("LOCKSTEP_JOB_ID"))) {}
  std::string path(int saved, int loaded) const { return str(path_, '-', saved, '-', loaded); }

 private:
  std::string path_;
};

RANKS_TEST(VirtualRankItem, IsExactWhoeverSavesAndLoads, Ranks(4), WithoutGroup()) {
  const Folder folders;
  for (int saving = 1; saving <= 4; ++saving)
    for (int loading = 1; loading <= 4; ++loading) {
      const std::string folder = folders.path(saving, loading);
      if (const JobOfSome job(rank(), saving, VIRTUAL_RANKS); job) {
        seed_virtual_ranks(SEED);
        Run run;
        expect_rounds(run, 0, 2);
        save_checkpoint(folder, run.state, {.step = 2, .durable = false});
        expect_rounds(run, 2, 4);  // saving changes nothing
      }
      if (const JobOfSome job(rank(), loading, VIRTUAL_RANKS); job) {
        seed_virtual_ranks(7);  // is replaced
        Run run;
        run.round();
        const auto loaded = load_checkpoint(folder, run.state);
        ASSERT_TRUE(loaded);
        EXPECT_EQ(loaded->saved_ranks, saving);
        EXPECT_THAT(loaded->notes, ::testing::IsEmpty());
        expect_state(2);
        expect_rounds(run, 2, 5);
        expect_state(5);
        barrier();
        if (get_rank() == 0) std::filesystem::remove_all(folder);
      }
    }
}

RANKS_TEST(VirtualRankItem, RefusesAnotherNumberOfVirtualRanks, Ranks(1, 2, 3), WithoutGroup()) {
  const std::string folder = Folder().path(0, size());
  if (const JobOfSome job(rank(), size(), VIRTUAL_RANKS); job) {
    seed_virtual_ranks(SEED);
    Run run;
    run.round();
    save_checkpoint(folder, run.state, {.step = 1, .durable = false});
  }
  for (const std::optional<int> other : {std::optional<int>(5), std::optional<int>()}) {
    const JobOfSome job(rank(), size(), other);
    Run run;
    EXPECT_THAT([&] { load_checkpoint(folder, run.state); },
                ThrowsMessage<InvalidArgument>(
                    HasSubstr(str("saved with 4 virtual ranks, and this job has ", other ? *other : 0))));
    barrier();
    if (!other && rank() == 0) std::filesystem::remove_all(folder);
  }
}

}  // namespace
}  // namespace lockstep
