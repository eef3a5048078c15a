// Training with V virtual ranks on N processes has the bits of training with DistributedDataParallel on V
// processes without them: parameters, momentum, buffers, and what evaluation on rank 0 would use.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <filesystem>

#include "lockstep/amp/grad_scaler.h"
#include "lockstep/autograd/autocast.h"
#include "lockstep/base/environment.h"
#include "lockstep/base/str.h"
#include "lockstep/data/data_loader.h"
#include "lockstep/data/sample_random.h"
#include "lockstep/job/job.h"
#include "lockstep/job/virtual_ranks.h"
#include "lockstep/optim/clip_grad.h"
#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "lockstep/parallel/virtual_ranks/virtual_rank_states.h"
#include "lockstep/parallel/virtual_ranks/virtual_ranks.h"
#include "lockstep/tensor/collectives.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

namespace nn = torch::nn;

struct Small : nn::Module {
  Small() {
    register_module("conv", conv);
    register_module("bn", bn);
    register_module("fc", fc);
    register_module("other", other);
  }
  at::Tensor forward(const at::Tensor& x, bool other_path = false) {
    at::Tensor h = torch::relu(bn->forward(conv->forward(x)));
    h = torch::dropout(torch::max_pool2d(h, 2).flatten(1), 0.3, is_training());
    return other_path ? other->forward(h) : fc->forward(h);
  }
  nn::Conv2d conv{nn::Conv2dOptions(1, 4, 3).padding(1)};
  nn::BatchNorm2d bn{4};
  nn::Linear fc{4 * 4 * 4, 10};
  nn::Linear other{4 * 4 * 4, 10};
};

// 8 x 8 images, flipped at random by item and epoch.
struct Images {
  Images() {
    const auto random = at::detail::createCPUGenerator(11);
    data = at::randn({200, 1, 8, 8}, random, at::TensorOptions(at::kFloat));
    target = at::randint(10, {200}, random, at::TensorOptions(at::kLong));
  }
  std::int64_t size() const { return data.size(0); }
  Batch get_batch(std::span<const std::int64_t> indices, std::int64_t epoch) const {
    std::vector<at::Tensor> images;
    std::vector<std::int64_t> labels;
    for (const auto index : indices) {
      SampleRandom random(5, epoch, index);
      images.push_back(random.uniform() < 0.5 ? data[index].flip(2) : data[index]);
      labels.push_back(target[index].item<std::int64_t>());
    }
    return {torch::stack(images), torch::tensor(labels)};
  }
  at::Tensor data, target;
};

struct Recipe {
  at::ScalarType dtype = at::kFloat;   // of the model
  bool mixed = false;                  // autocast to bfloat16 and a GradScaler
  int accumulate = 1;                  // rounds that make one step
  bool micro_batches_in_turn = false;  // a turn's backward in two halves
  bool keeps_gradients = false;        // zero_grad(false)
  bool finds_unused = false;           // each virtual rank takes one of two paths, some steps all the same
  bool broadcast_buffers = true;
  bool clips = false;
  std::size_t bucket_bytes = 2048;  // several buckets
};

struct Trained {
  std::vector<at::Tensor> model;           // parameters and momentum, which all ranks have
  std::map<int, NamedTensors> by_virtual;  // states
  NamedTensors buffers;                    // of the model, after training

  bool has_bits_of(const Trained& other) const {
    bool same = model.size() == other.model.size();
    for (std::size_t i = 0; same && i < model.size(); ++i) same = model[i].equal(other.model[i]);
    return same;
  }
};

class Training {
 public:
  explicit Training(const Recipe& recipe) : recipe_(recipe) {
    torch::manual_seed(1);
    at::set_num_threads(1);
    net_ = std::make_shared<Small>();
    if (!recipe.finds_unused)
      net_->other->weight.requires_grad_(false), net_->other->bias.requires_grad_(false);
    net_->to(recipe.dtype);
    ddp_.emplace(net_, DistributedDataParallelOptions{
                           .broadcast_buffers = recipe.broadcast_buffers,
                           .bucket_cap_mb = static_cast<double>(recipe.bucket_bytes) / 1048576,
                           .find_unused_parameters = recipe.finds_unused});
    optimizer_.emplace(ddp_->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
    if (recipe.mixed) scaler_.emplace();
    seed_virtual_ranks(77);
  }

  // `begin`: steps that have been made before, as after a resume.
  void run(int steps, int begin = 0) {
    DistributedSampler sampler(images_.size());
    auto loader = make_data_loader(images_, sampler, {.batch_size = 4, .workers = 1, .drop_last = true});
    int done = 0;
    for (int epoch = 0; done < steps; ++epoch) {
      sampler.set_epoch(epoch);
      for (auto& step : virtual_steps(loader)) {
        if (done++ < begin) continue;
        if (done > steps) break;
        const bool ends = done % recipe_.accumulate == 0;
        std::optional<DistributedDataParallelBase::NoSync> local;
        if (!ends) local.emplace(ddp_->no_sync());
        for (auto& batch : step) backward(batch, done);
        if (ends) update();
      }
    }
  }

  void backward(const Batch& batch, int step) {
    const at::Tensor data = batch.data.to(recipe_.dtype);
    if (recipe_.micro_batches_in_turn) {
      {
        const auto guard = ddp_->no_sync();
        loss_of(data.narrow(0, 0, 2), batch.target.narrow(0, 0, 2), step).backward();
      }
      return loss_of(data.narrow(0, 2, 2), batch.target.narrow(0, 2, 2), step).backward();
    }
    loss_of(data, batch.target, step).backward();
  }

  at::Tensor loss_of(const at::Tensor& data, const at::Tensor& target, int step) {
    std::optional<Autocast> mixed;
    if (recipe_.mixed) mixed.emplace(at::kCPU, at::kBFloat16, true, std::nullopt);
    const bool other = recipe_.finds_unused && (step + get_virtual_rank()) % 3 == 0;
    const at::Tensor loss =
        torch::nll_loss(torch::log_softmax(ddp_->forward(data, other), 1).to(at::kFloat), target);
    return scaler_ ? scaler_->scale(loss) : loss;
  }

  void update() {
    if (scaler_) scaler_->unscale_(*optimizer_);
    if (recipe_.clips) clip_grad_norm_(ddp_->parameters(), 0.5);
    if (scaler_) {
      scaler_->step(*optimizer_);
      scaler_->update();
    } else {
      optimizer_->step();
    }
    ddp_->zero_grad(!recipe_.keeps_gradients);
  }

  Trained result() {
    Trained trained;
    for (const at::Tensor& parameter : ddp_->parameters()) {
      trained.model.push_back(parameter.detach().clone());
      const auto found = optimizer_->state().find(parameter.unsafeGetTensorImpl());
      if (found == optimizer_->state().end()) continue;
      trained.model.push_back(
          static_cast<const torch::optim::SGDParamState&>(*found->second).momentum_buffer().clone());
    }
    for (const auto& item : net_->named_buffers())
      trained.buffers.emplace_back(item.key(), item.value().clone());
    for (auto& state : virtual_rank_states()) trained.by_virtual[state.virtual_rank] = state.tensors;
    return trained;
  }

  Small& net() { return *net_; }
  torch::optim::SGD& optimizer() { return *optimizer_; }

 private:
  Recipe recipe_;
  Images images_;
  std::shared_ptr<Small> net_;
  std::optional<DistributedDataParallel<Small>> ddp_;
  std::optional<torch::optim::SGD> optimizer_;
  std::optional<GradScaler> scaler_;
};

// A job of the first `processes` of this test's processes. The others are in one of their own for a moment,
// because the processes of a job must have been in equally many before.
class JobOf {
 public:
  JobOf(int rank, int processes, const std::optional<int>& virtual_ranks) : path_(path_of_next()) {
    if (rank >= processes) {
      init_process_group("self", {.rank = 0, .world_size = 1});
      destroy_process_group();
      return;
    }
    init_process_group("auto", {.init_method = "file://" + path_,
                                .rank = rank,
                                .world_size = processes,
                                .virtual_ranks = virtual_ranks});
    is_in_ = true;
  }
  ~JobOf() {
    if (!is_in_) return;
    if (std::uncaught_exceptions() == 0) barrier();
    if (get_rank() == 0) std::filesystem::remove(path_);
    destroy_process_group();
  }
  JobOf(const JobOf&) = delete;
  JobOf& operator=(const JobOf&) = delete;
  explicit operator bool() const { return is_in_; }

 private:
  static std::string path_of_next() {
    static int number = 0;
    return str(std::filesystem::temp_directory_path().string(), "/lockstep-virtual-", *env("LOCKSTEP_JOB_ID"),
               '-', ++number);
  }
  std::string path_;
  bool is_in_ = false;
};

constexpr int STEPS = 20;

// Buffers of all ranks of a job without virtual ranks, by rank.
std::vector<NamedTensors> buffers_of_all(const Trained& trained) {
  std::vector<NamedTensors> all(static_cast<std::size_t>(get_world_size()));
  for (const auto& [name, tensor] : trained.buffers) {
    std::vector<at::Tensor> gathered;
    for (int rank = 0; rank < get_world_size(); ++rank) gathered.push_back(at::empty_like(tensor));
    all_gather(gathered, tensor.contiguous());
    for (std::size_t rank = 0; rank < gathered.size(); ++rank) all[rank].emplace_back(name, gathered[rank]);
  }
  return all;
}

void expect_buffers(const NamedTensors& state, const NamedTensors& expected, int virtual_rank) {
  for (const auto& [name, tensor] : expected) {
    bool found = false;
    for (const auto& [other, value] : state) {
      if (other != "model.0." + name) continue;
      found = true;
      EXPECT_TRUE(value.equal(tensor)) << name << " of virtual rank " << virtual_rank;
    }
    EXPECT_TRUE(found) << name;
  }
}

// As many processes as the test has virtual ranks train without them; then one process to all of them with.
void expect_same_bits(int rank, int virtual_ranks, const Recipe& recipe) {
  Trained plain;
  std::vector<NamedTensors> buffers;
  {
    const JobOf job(rank, virtual_ranks, std::nullopt);
    Training training(recipe);
    training.run(STEPS);
    plain = training.result();
    buffers = buffers_of_all(plain);
    EXPECT_GT(plain.model.size(), 6U);
  }
  for (int processes = 1; processes <= virtual_ranks; ++processes) {
    const JobOf job(rank, processes, virtual_ranks);
    if (!job) continue;
    Training training(recipe);
    training.run(STEPS);
    const Trained trained = training.result();
    EXPECT_TRUE(trained.has_bits_of(plain))
        << virtual_ranks << " virtual ranks on " << processes << " processes";
    for (const auto& [v, state] : trained.by_virtual)
      expect_buffers(state, buffers[static_cast<std::size_t>(v)], v);
    // Evaluation on a process uses its first virtual rank's.
    const auto first = static_cast<std::size_t>(local_virtual_ranks().front());
    for (std::size_t i = 0; i < trained.buffers.size(); ++i)
      EXPECT_TRUE(trained.buffers[i].second.equal(buffers[first][i].second)) << trained.buffers[i].first;
  }
}

RANKS_TEST(VirtualRanksDdp, HaveTheBitsOfAsManyProcesses, Ranks(1, 2, 3, 4, 5, 8), WithoutGroup()) {
  expect_same_bits(rank(), size(), {});
}

RANKS_TEST(VirtualRanksDdp, InFloat64, Ranks(4), WithoutGroup()) {
  expect_same_bits(rank(), size(), {.dtype = at::kDouble});
}

RANKS_TEST(VirtualRanksDdp, InBfloat16RoundOnce, Ranks(3, 4), WithoutGroup()) {
  expect_same_bits(rank(), size(), {.dtype = at::kBFloat16});
}

RANKS_TEST(VirtualRanksDdp, InMixedPrecisionWithAScalerAndClipping, Ranks(4, 5), WithoutGroup()) {
  expect_same_bits(rank(), size(), {.mixed = true, .clips = true});
}

RANKS_TEST(VirtualRanksDdp, AccumulateOverRounds, Ranks(3, 4), WithoutGroup()) {
  expect_same_bits(rank(), size(), {.accumulate = 4});
}

RANKS_TEST(VirtualRanksDdp, AccumulateWithinATurn, Ranks(3, 4), WithoutGroup()) {
  expect_same_bits(rank(), size(), {.micro_batches_in_turn = true, .bucket_bytes = 1U << 20});
}

RANKS_TEST(VirtualRanksDdp, AddToGradientsThatAreZeroed, Ranks(4), WithoutGroup()) {
  expect_same_bits(rank(), size(), {.keeps_gradients = true});
  expect_same_bits(rank(), size(), {.micro_batches_in_turn = true, .keeps_gradients = true});
}

RANKS_TEST(VirtualRanksDdp, FindUnusedParameters, Ranks(2, 4), WithoutGroup()) {
  expect_same_bits(rank(), size(), {.finds_unused = true});
  expect_same_bits(rank(), size(), {.keeps_gradients = true, .finds_unused = true});
}

RANKS_TEST(VirtualRanksDdp, HaveBuffersOfTheirOwnWithoutBroadcasts, Ranks(3, 4), WithoutGroup()) {
  expect_same_bits(rank(), size(), {.broadcast_buffers = false});
}

// Half of the steps on some processes, the other half on others, after their states travelled.
RANKS_TEST(VirtualRanksDdp, GoOnOnAnotherNumberOfProcesses, Ranks(4), WithoutGroup()) {
  const std::string folder = str(std::filesystem::temp_directory_path().string(), "/lockstep-virtual-states-",
                                 *env("LOCKSTEP_JOB_ID"));
  const auto file = [&](int v) { return str(folder, '/', v, ".pt"); };
  Trained plain;
  {
    const JobOf job(rank(), 4, std::nullopt);
    Training training({});
    training.run(STEPS);
    plain = training.result();
    std::filesystem::create_directories(folder);
    barrier();
  }
  for (const auto& [before, after] : std::vector<std::pair<int, int>>{{2, 3}, {3, 1}, {1, 4}, {4, 2}}) {
    if (const JobOf job(rank(), before, 4); job) {
      Training training({});
      training.run(STEPS / 2);
      for (const VirtualRankState& state : virtual_rank_states()) {
        std::vector<at::Tensor> values;
        for (const auto& [name, tensor] : state.tensors) values.push_back(tensor);
        torch::save(values, file(state.virtual_rank));
      }
      if (rank() == 0) {
        torch::serialize::OutputArchive model;
        training.net().save(model);
        model.save_to(folder + "/model.pt");
        torch::save(training.optimizer(), folder + "/optimizer.pt");
      }
    }
    {
      const JobOf all(rank(), 4, std::nullopt);  // the files are there
    }
    const JobOf job(rank(), after, 4);
    if (!job) continue;
    Training training({});
    torch::serialize::InputArchive model;
    model.load_from(folder + "/model.pt");
    training.net().load(model);
    torch::load(training.optimizer(), folder + "/optimizer.pt");
    std::vector<VirtualRankState> states = virtual_rank_states();  // their names
    for (VirtualRankState& state : states) {
      std::vector<at::Tensor> values;
      torch::load(values, file(state.virtual_rank));
      ASSERT_EQ(values.size(), state.tensors.size());
      for (std::size_t i = 0; i < values.size(); ++i) state.tensors[i].second = values[i];
    }
    load_virtual_rank_states(states);
    training.run(STEPS, STEPS / 2);
    EXPECT_TRUE(training.result().has_bits_of(plain)) << before << " to " << after << " processes";
  }
  {
    const JobOf all(rank(), 4, std::nullopt);
    if (rank() == 0) std::filesystem::remove_all(folder);
  }
}

}  // namespace
}  // namespace lockstep
