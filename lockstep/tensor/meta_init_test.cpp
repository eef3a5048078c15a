// Against libtorch's ordinary construction in the same process: values, and the state of the generator.
#include "lockstep/tensor/meta_init.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/wait.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <functional>
#include <memory>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/tensor/caching_allocator.h"
#include "lockstep/tensor/random_state.h"
#include "lockstep/tensor/state_dict.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
namespace nn = torch::nn;
using Module = std::shared_ptr<nn::Module>;

void expect_same(const nn::Module& found, const nn::Module& expected) {
  const NamedTensors ours = state_dict(found), theirs = state_dict(expected);
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const auto& [name, tensor] = ours[i];
    EXPECT_EQ(name, theirs[i].first);
    EXPECT_FALSE(is_deferred(tensor)) << name;
    EXPECT_EQ(tensor.strides(), theirs[i].second.strides()) << name;
    EXPECT_EQ(tensor.requires_grad(), theirs[i].second.requires_grad()) << name;
    EXPECT_EQ(tensor.scalar_type(), theirs[i].second.scalar_type()) << name;
    EXPECT_TRUE(torch::equal(tensor, theirs[i].second)) << name;
  }
}

std::size_t deferred_in(const nn::Module& module) {
  std::size_t count = 0;
  for (const auto& [name, tensor] : state_dict(module)) count += is_deferred(tensor) ? 1 : 0;
  return count;
}

void expect_ordinary_values(const std::function<Module()>& construct, std::size_t deferred) {
  torch::manual_seed(7);
  torch::randn({1});  // leaves one of a pair of normal numbers in the generator
  const at::Tensor before = get_rng_state();
  const Module expected = construct();
  const at::Tensor after = get_rng_state();
  set_rng_state(before);
  const Module found = meta_init(construct);
  EXPECT_TRUE(torch::equal(get_rng_state(), after));
  EXPECT_EQ(deferred_in(*found), deferred);
  torch::rand({5});  // somebody draws before the values are needed
  const at::Tensor then = get_rng_state();
  materialize(*found);
  EXPECT_TRUE(torch::equal(get_rng_state(), then));
  expect_same(*found, *expected);
}

TEST(MetaInit, HasTheValuesOfLayers) {
  expect_ordinary_values([] { return nn::Linear(300, 200).ptr(); }, 1);
  expect_ordinary_values([] { return nn::Linear(40, 2000).ptr(); }, 2);
  expect_ordinary_values([] { return nn::Conv2d(nn::Conv2dOptions(20, 30, 5).groups(2)).ptr(); }, 1);
  expect_ordinary_values([] { return nn::ConvTranspose1d(nn::ConvTranspose1dOptions(30, 40, 3)).ptr(); }, 1);
  expect_ordinary_values([] { return nn::BatchNorm2d(3000).ptr(); }, 4);
  expect_ordinary_values([] { return nn::Embedding(nn::EmbeddingOptions(500, 30).padding_idx(3)).ptr(); }, 1);
  expect_ordinary_values(
      [] { return nn::GRU(nn::GRUOptions(40, 60).num_layers(2).bidirectional(true)).ptr(); }, 8);
  expect_ordinary_values([] { return nn::LSTM(nn::LSTMOptions(40, 60).proj_size(20)).ptr(); }, 3);
  expect_ordinary_values(
      [] { return nn::TransformerEncoderLayer(nn::TransformerEncoderLayerOptions(64, 4)).ptr(); }, 5);
}

TEST(MetaInit, HasTheValuesOfEveryInitialiser) {
  struct Net : nn::Module {
    Net() {
      const auto add = [this](const char* name, at::IntArrayRef sizes) {
        return register_parameter(name, torch::empty(sizes));
      };
      nn::init::orthogonal_(add("orthogonal", {60, 40}));
      nn::init::orthogonal_(add("wide", {40, 60}), 2);
      nn::init::sparse_(add("sparse", {50, 40}), 0.3);
      nn::init::eye_(add("eye", {50, 50}));
      nn::init::dirac_(add("dirac", {20, 20, 3}));
      nn::init::xavier_normal_(add("xavier_normal", {50, 50}));
      nn::init::xavier_uniform_(add("xavier_uniform", {50, 50}));
      nn::init::kaiming_normal_(add("kaiming_normal", {50, 50}));
      nn::init::constant_(add("constant", {50, 50}), 3);
    }
  };
  expect_ordinary_values([] { return std::make_shared<Net>(); }, 9);
}

// What constructors of models do beside torch::nn::init.
struct Handmade : nn::Module {
  Handmade() {
    const torch::NoGradGuard no_grad;
    a = register_parameter("a", torch::randn({64, 64}));
    b = register_parameter("b", torch::empty({64, 64}));
    b.copy_(a).mul_(2).narrow(0, 3, 5).fill_(7);
    a.add_(b.t(), 0.5).clamp_(-1, 1);  // reads b, which is written to again
    b.select(1, 5).normal_(1, 2);
    tied = register_parameter("tied", a);
    view = register_buffer("view", b.detach().slice(0, 10, 40));  // of the same storage
    positions = register_buffer("positions", torch::arange(4096).unsqueeze(0));
    mask = register_buffer("mask", torch::triu(torch::ones({64, 64}, at::kBool), 1));
    scale =
        register_buffer("scale", torch::tensor(std::vector<float>{0.485F, 0.456F, 0.406F}).view({1, 3, 1}));
    table = register_buffer("table", torch::tensor(std::vector<double>(3000, 1.5)));
    nested = register_buffer("nested", torch::tensor({{1, 2}, {3, 4}}));
    mixed = register_parameter("mixed", torch::rand({40, 40}) * scale.sum());
    normal = register_parameter("normal", at::normal(torch::ones({50, 50}), torch::full({50, 50}, 0.1)));
    kept = register_parameter("kept", torch::dropout(torch::ones({64, 64}), 0.5, true));
    half = register_parameter("half", torch::randn({64, 64}).to(at::kBFloat16));
    if (a.norm().item<double>() > 1) a.div_(a.norm().item<double>());  // depends on values
    torch::manual_seed(99);                                            // a constructor of fixed values
    fixed = register_parameter("fixed", torch::randn({50, 50}));
    stacked = register_parameter("stacked",
                                 torch::cat({fixed, torch::stack({a, b}).flatten(0, 1).slice(1, 0, 50)}));
  }
  at::Tensor a, b, tied, view, positions, mask, scale, table, nested, mixed, normal, kept, half, fixed,
      stacked;
};

TEST(MetaInit, HasTheValuesOfHandmadeConstructors) {
  expect_ordinary_values([] { return std::make_shared<Handmade>(); }, 11);
  const auto net = meta_init([] { return std::make_shared<Handmade>(); });
  materialize(*net);
  EXPECT_TRUE(net->tied.is_same(net->a));
  EXPECT_TRUE(net->view.is_alias_of(net->b));
  EXPECT_TRUE(torch::equal(net->view, net->b.slice(0, 10, 40)));
}

TEST(MetaInit, ConvertsWithinTheConstruction) {
  expect_ordinary_values(
      [] {
        nn::Sequential net(nn::Linear(100, 50), nn::BatchNorm1d(50), nn::Linear(50, 3000));
        net->to(at::kDouble);
        for (auto& parameter : net->parameters()) {
          if (parameter.dim() == 1) nn::init::uniform_(parameter);
        }
        return net.ptr();
      },
      3);
}

TEST(MetaInit, MayBeNestedAndUsesTheGeneratorThatIsGiven) {
  const auto construct = [] {
    at::Generator generator = at::globalContext().defaultGenerator(at::kCPU).clone();
    generator.set_current_seed(5);
    auto net = meta_init([] { return nn::Linear(100, 100); });
    const torch::NoGradGuard no_grad;
    net->weight.normal_(0, 1, generator);
    return net.ptr();
  };
  torch::manual_seed(3);
  const auto found = meta_init(construct);
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU).clone();
  generator.set_current_seed(5);
  materialize(*found);
  EXPECT_TRUE(
      torch::equal(found->named_parameters()["weight"], torch::empty({100, 100}).normal_(0, 1, generator)));
}

TEST(MetaInit, RefusesUseBeforeItIsPlaced) {
  auto net = meta_init([] { return nn::Linear(100, 50); });
  EXPECT_TRUE(net->weight.is_cpu());
  const auto names_cause = ThrowsMessage<c10::Error>(HasSubstr("this tensor has no memory yet"));
  EXPECT_THAT([&] { net->forward(torch::ones({2, 100})); }, names_cause);
  EXPECT_THAT([&] { net->weight.data_ptr(); }, names_cause);
  EXPECT_THAT([&] { net->weight.sum().item(); }, names_cause);
  const torch::NoGradGuard no_grad;
  EXPECT_THAT([&] { net->weight.fill_(1); }, names_cause);
  EXPECT_THAT([&] { net->weight.clone(); }, names_cause);
  materialize(*net);
  EXPECT_EQ(net->forward(torch::ones({2, 100})).size(1), 50);
  materialize(*net);  // nothing is left to do
}

TEST(MetaInit, RefusesByNameWhatItCannotRecord) {
  std::vector<float> values(1 << 20, 1.0F);
  const auto large = [&](at::Tensor weight) {
    const torch::NoGradGuard no_grad;
    weight.copy_(torch::from_blob(values.data(), {1 << 20}));
  };
  EXPECT_THAT(
      [&] {
        meta_init([&] {
          large(torch::empty({1 << 20}));
          return 0;
        });
      },
      ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("meta_init: aten::copy_ reads a tensor of 4194304"),
                                           HasSubstr("load_state_dict"))));
  EXPECT_THAT([] { meta_init([] { return nn::Linear(100, 100)->weight.fill_(1); }); },
              ThrowsMessage<InvalidArgument>(HasSubstr("meta_init: aten::fill_.Scalar writes to a leaf")));
  EXPECT_THAT([] { meta_init([] {
                     return torch::empty({100, 100}).data_ptr<float>()[0];
                   }); },
              ThrowsMessage<c10::Error>(HasSubstr("this tensor has no memory yet")));
  const auto other = meta_init([] { return torch::rand({100, 100}); });
  EXPECT_THAT(
      [&] { meta_init([&] { return other * 2; }); },
      ThrowsMessage<InvalidArgument>(HasSubstr("meta_init: aten::mul.Scalar is given a tensor of another")));
  // A mistake of the program is libtorch's error, as without meta_init, and recording ends with it.
  EXPECT_THAT([] { meta_init([] {
                     return torch::rand({100, 100}).mm(torch::rand({99, 100}));
                   }); },
              ThrowsMessage<c10::Error>(HasSubstr("cannot be multiplied")));
  EXPECT_FALSE(is_deferred(torch::empty({100, 100})));
}

TEST(MetaInit, RecordsNoGraphs) {
  const auto weight = meta_init([] {
    at::Tensor raw = torch::rand({50, 50}).requires_grad_(true);
    return raw * 2;
  });
  EXPECT_TRUE(weight.requires_grad());
  materialize({weight});
  EXPECT_THAT([&] { weight.sum().backward(); },
              ThrowsMessage<std::exception>(HasSubstr("meta_init() records no graphs")));
}

std::size_t resident_peak() {  // bytes
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoul(line.substr(6)) * 1024;
  }
  return 0;
}

// How far the peak of a fresh process rises in `body(layers)`. A process that has just forked maps no pages
// of libraries: what `body(1)` uses is mapped before the peak begins, else megabytes of code would count.
std::size_t rise_of_peak(std::size_t layers, const std::function<void(std::size_t)>& body) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) return 0;
  const pid_t child = fork();
  if (child == 0) {
    body(1);
    empty_cache();
    malloc_trim(0);
    std::ofstream("/proc/self/clear_refs") << 5;  // the peak begins anew
    const std::size_t before = resident_peak();
    body(layers);
    const std::size_t rise = resident_peak() - before;
    _exit(write(ends[1], &rise, sizeof(rise)) == sizeof(rise) ? 0 : 1);
  }
  std::size_t rise = 0;
  EXPECT_EQ(read(ends[0], &rise, sizeof(rise)), static_cast<ssize_t>(sizeof(rise)));
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  close(ends[0]);
  close(ends[1]);
  return rise;
}

// 24 layers of 4 MiB: their construction takes the memory of one of them, in at most three huge pages, and
// notes of what to draw; placing them takes that of all. The kernel's count of pages is off by some for each
// CPU.
TEST(MetaInit, NeedsTheMemoryOfOneParameter) {
  at::set_num_threads(1);  // a fork has one
  constexpr std::size_t UNIT = 4 << 20, LAYERS = 24, COUNTED = UNIT / 2;
  const auto construct = [](std::size_t layers) {
    nn::Sequential net;
    for (std::size_t i = 0; i < layers; ++i) net->push_back(nn::Linear(1024, 1024));
    return net;
  };
  const auto record = [&](std::size_t layers) { return meta_init([&] { return construct(layers); }); };
  EXPECT_GE(rise_of_peak(LAYERS, construct), LAYERS * UNIT - COUNTED);
  EXPECT_LE(rise_of_peak(LAYERS, record), 3 * UNIT);
  const auto place = [&](std::size_t layers) { materialize(*record(layers)); };
  EXPECT_LE(rise_of_peak(LAYERS, place), (LAYERS + 3) * UNIT);
}

}  // namespace
}  // namespace lockstep
