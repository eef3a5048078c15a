// What a checkpointed model computes is, bit for bit, what the same model computes without.
#include "lockstep/autograd/activation_checkpoint.h"

#include <c10/core/CPUAllocator.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <atomic>

#include "lockstep/autograd/autocast.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

namespace nn = torch::nn;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Tensors = std::vector<at::Tensor>;

nn::Sequential block(int width) {
  return nn::Sequential(nn::Linear(width, width), nn::Tanh(), nn::Dropout(0.4), nn::Linear(width, width));
}

// The gradients of all parameters, and of the input, after forward and backward from one state of the random
// generator.
template <typename Forward>
Tensors gradients(const nn::Module& model, const at::Tensor& x, Forward forward,
                  bool leaves_generator = true) {
  for (const at::Tensor& p : model.parameters()) p.mutable_grad() = at::Tensor();
  x.mutable_grad() = at::Tensor();
  torch::manual_seed(5);
  const at::Tensor loss = forward(x).to(at::kFloat).pow(2).mean() + torch::rand({}) * 0;
  torch::rand({7});  // what backward must neither see nor change
  const at::Tensor before = at::globalContext().defaultGenerator(at::kCPU).get_state();
  loss.backward();
  EXPECT_EQ(leaves_generator, before.equal(at::globalContext().defaultGenerator(at::kCPU).get_state()));
  Tensors all = {loss.detach()};
  for (const at::Tensor& p : model.parameters()) all.push_back(p.grad().clone());
  if (x.requires_grad()) all.push_back(x.grad().clone());
  return all;
}

void expect_equal(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].equal(b[i])) << i;
}

struct Stack : nn::Module {
  explicit Stack(int blocks) {
    for (int i = 0; i < blocks; ++i) parts.push_back(register_module("part" + std::to_string(i), block(8)));
  }
  at::Tensor forward(at::Tensor x, bool checkpointed, const CheckpointOptions& options = {}) {
    for (auto& part : parts) x = checkpointed ? checkpoint(options, part, x) : part->forward(x);
    return x;
  }
  std::vector<nn::Sequential> parts;
};

TEST(Checkpoint, GivesTheSameBits) {
  Stack model(3);
  for (const bool input_needs_gradient : {false, true}) {
    const at::Tensor x = torch::randn({5, 8}).set_requires_grad(input_needs_gradient);
    const auto run = [&](bool on, const CheckpointOptions& options = {}) {
      return gradients(
          model, x, [&](const at::Tensor& in) { return model.forward(in, on, options); },
          options.preserve_rng_state);
    };
    const Tensors plain = run(false);
    EXPECT_EQ(plain.size(), input_needs_gradient ? 14u : 13u);
    expect_equal(plain, run(true));
    expect_equal(plain, run(true, {.early_stop = false}));
    expect_equal(plain, run(true, {.determinism_check = false}));
    const Tensors other = run(true, {.preserve_rng_state = false});  // another dropout in backward
    EXPECT_FALSE(plain[1].equal(other[1]));
  }
}

TEST(Checkpoint, UnderAutocastToo) {
  Stack model(2);
  const at::Tensor x = torch::randn({5, 8});
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const auto run = [&](bool on) {
      return gradients(model, x, [&](const at::Tensor& in) {
        const auto mixed = autocast(at::kCPU, dtype);
        return model.forward(in, on);
      });
    };
    expect_equal(run(false), run(true));
  }
  // The other way round: backward is called under autocast, forward was not.
  const auto run = [&](bool on) {
    const at::Tensor loss = model.forward(x, on).mean();
    const auto mixed = autocast(at::kCPU);
    return torch::autograd::grad({loss}, model.parameters());
  };
  model.eval();
  expect_equal(run(false), run(true));
}

TEST(Checkpoint, RunsTheFunctionAgainOnceAndNoFurtherThanNeeded) {
  const at::Tensor x = torch::ones({3}, torch::requires_grad());
  int begun = 0, ended = 0;
  const auto function = [&](const at::Tensor& in) {
    ++begun;
    at::Tensor out = in.exp().sin();
    ++ended;
    return out;
  };
  const at::Tensor y = checkpoint(function, x);
  y.sum().backward();
  EXPECT_EQ(begun, 2);
  EXPECT_EQ(ended, 1);  // sin saved its input; nothing after it is needed
  checkpoint({.early_stop = false}, function, x).sum().backward();
  EXPECT_EQ(ended, 3);
  {
    const torch::NoGradGuard no_grad;
    EXPECT_FALSE(checkpoint(function, x).requires_grad());
  }
  EXPECT_EQ(begun, 5);
}

TEST(Checkpoint, TakesAndGivesWhateverAFunctionDoes) {
  using Pair = std::pair<at::Tensor, std::optional<at::Tensor>>;
  const auto function = [](const at::Tensor& a, const Pair& b, const std::vector<at::Tensor>& c,
                           double factor, const std::optional<at::Tensor>& none) {
    EXPECT_FALSE(none.has_value());
    EXPECT_FALSE(c[1].defined());
    return std::tuple(a * *b.second * factor, std::vector<at::Tensor>{(b.first * c[0]).exp()});
  };
  const auto leaf = [](double value) { return torch::full({2}, value, torch::requires_grad()); };
  const auto run = [&](bool on) {
    const Tensors leaves = {leaf(1), leaf(2), leaf(3), leaf(0.5)};
    const Pair b = {leaves[1], leaves[2]};
    const std::vector<at::Tensor> c = {leaves[3], at::Tensor()};
    const auto [first, second] = on ? checkpoint(function, leaves[0], b, c, 2.5, std::optional<at::Tensor>())
                                    : function(leaves[0], b, c, 2.5, std::nullopt);
    (first + second[0]).sum().backward();
    Tensors gradients;
    for (const at::Tensor& one : leaves) gradients.push_back(one.grad());
    return gradients;
  };
  expect_equal(run(false), run(true));

  struct Affine : nn::Module {
    at::Tensor forward(const at::Tensor& x, int times) { return (weight * x).exp() * times; }
    at::Tensor weight = register_parameter("weight", torch::full({2}, 0.5));
  };
  const auto module = std::make_shared<Affine>();
  checkpoint(module, leaf(2), 3).sum().backward();
  EXPECT_TRUE(module->weight.grad().allclose(torch::full({2}, 3 * 2 * std::exp(1.0F))));
  nn::AnyModule any(nn::Linear(2, 2));
  EXPECT_EQ(checkpoint(any, leaf(2)).sizes(), at::IntArrayRef({2}));
}

TEST(Checkpoint, Nests) {
  Stack model(6);
  const at::Tensor x = torch::randn({4, 8}, torch::requires_grad());
  int inner_calls = 0;
  const auto run = [&](bool on) {
    return gradients(model, x, [&](const at::Tensor& in) {
      if (!on) {
        at::Tensor y = in;
        for (auto& part : model.parts) y = part->forward(y.tanh());
        return y;
      }
      const auto third = [&](std::size_t from) {
        return [&, from](const at::Tensor& start) {
          at::Tensor y = start;
          for (std::size_t i = from; i < from + 2; ++i) {
            y = checkpoint(
                [&, i](const at::Tensor& z) {
                  ++inner_calls;
                  return model.parts[i]->forward(z);
                },
                y.tanh());
          }
          return y;
        };
      };
      return checkpoint(third(4), checkpoint(third(2), checkpoint(third(0), in)));
    });
  };
  const Tensors plain = run(false);
  expect_equal(plain, run(true));
  EXPECT_LE(inner_calls, 18);  // in forward, when the outer one runs again, and once more each
}

TEST(Checkpoint, BackwardTwiceAndInParts) {
  const at::Tensor a = torch::full({3}, 0.3, torch::requires_grad());
  const at::Tensor b = torch::full({3}, 0.7, torch::requires_grad());
  int calls = 0;
  const auto function = [&](const at::Tensor& p, const at::Tensor& q) {
    ++calls;
    return std::pair((p * q).exp(), p.sin());
  };
  const auto [first, second] = checkpoint(function, a, b);
  const at::Tensor ones = torch::ones({3});
  const auto grad = [&](const at::Tensor& out, const at::Tensor& in) {
    return torch::autograd::grad({out}, {in}, {ones}, /*retain_graph=*/true)[0];
  };
  EXPECT_TRUE(grad(second, a).equal(a.detach().cos()));
  EXPECT_EQ(calls, 2);
  const at::Tensor of_b = grad(first, b);
  EXPECT_TRUE(of_b.equal((a * b).exp().detach() * a.detach()));
  EXPECT_EQ(calls, 3);
  EXPECT_TRUE(grad(first, b).equal(of_b));
  (first + second).sum().backward();
  EXPECT_TRUE(b.grad().equal(of_b));
  EXPECT_THROW((first + second).sum().backward(), c10::Error);  // the graph is gone, as without checkpoint
}

TEST(Checkpoint, AFunctionMayDifferentiate) {
  const at::Tensor w = torch::full({3}, 0.4, torch::requires_grad());
  const auto penalised = [&](const at::Tensor& x) {
    const at::Tensor y = (w * x).exp().sum();
    const at::Tensor slope = torch::autograd::grad({y}, {x}, {}, true, /*create_graph=*/true)[0];
    return y + slope.pow(2).sum();
  };
  const auto run = [&](bool on) {
    w.mutable_grad() = at::Tensor();
    const at::Tensor x = torch::linspace(0.1, 0.9, 3).set_requires_grad(true);
    (on ? checkpoint(penalised, x) : penalised(x)).backward();
    return Tensors{w.grad(), x.grad()};
  };
  expect_equal(run(false), run(true));
}

TEST(Checkpoint, NamesWhatWasNotTheSame) {
  const at::Tensor x = torch::ones({3}, torch::requires_grad());
  int calls = 0;
  const auto run = [&](auto function, const CheckpointOptions& options = {}) {
    calls = 0;
    checkpoint(options, function, x).sum().backward();
  };
  const auto shrinks = [&](const at::Tensor& in) { return in.narrow(0, 0, 3 - calls++).exp().exp(); };
  EXPECT_THAT([&] { run(shrinks); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("tensor 1 of 2"), HasSubstr("[3] Float on cpu"),
                                                   HasSubstr("is [2] Float on cpu now"))));
  const auto shortens = [&](const at::Tensor& in) { return calls++ == 0 ? in.exp().exp() : in.exp(); };
  EXPECT_THAT([&] { run(shortens); },
              ThrowsMessage<InvalidArgument>(HasSubstr("saved 2 tensors in forward and 1 now")));
  const auto lengthens = [&](const at::Tensor& in) { return calls++ == 0 ? in.exp() : in.exp().exp(); };
  EXPECT_THAT([&] { run(lengthens, {.early_stop = false}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("saved 1 tensors in forward and 2 now")));
  run(lengthens);
  const auto throws = [&](const at::Tensor& in) {
    if (calls++ > 0) throw std::out_of_range("the second time");
    return in.exp();
  };
  EXPECT_THAT([&] { run(throws); }, ThrowsMessage<std::out_of_range>("the second time"));
  const auto catches = [&](const at::Tensor& in) {
    try {
      return in.exp();
    } catch (const std::exception&) {
      return in;
    }
  };
  run(catches);
}

TEST(Checkpoint, NoticesAnInputThatWasChangedInPlace) {
  const at::Tensor x = torch::ones({3}, torch::requires_grad());
  const at::Tensor h = x * 2;
  const at::Tensor y = checkpoint([](const at::Tensor& in) { return in.exp(); }, h).sum();
  h.detach().zero_();
  EXPECT_THAT([&] { y.backward(); },
              ThrowsMessage<c10::Error>(HasSubstr("modified by an inplace operation")));
}

TEST(Checkpoint, Sequential) {
  nn::Sequential model;
  for (int i = 0; i < 7; ++i)
    model->push_back(i % 2 == 0 ? nn::AnyModule(nn::Linear(6, 6)) : nn::AnyModule(nn::Tanh()));
  const at::Tensor x = torch::randn({4, 6}, torch::requires_grad());
  const Tensors plain = gradients(*model, x, [&](const at::Tensor& in) { return model->forward(in); });
  for (const int segments : {1, 2, 3, 7}) {
    expect_equal(plain, gradients(*model, x, [&](const at::Tensor& in) {
                   return checkpoint_sequential(model, segments, in);
                 }));
  }
  EXPECT_THAT([&] { checkpoint_sequential(model, 8, x); },
              ThrowsMessage<InvalidArgument>(HasSubstr("8 segments of 7 functions")));
  EXPECT_THROW(checkpoint_sequential(model, 0, x), InvalidArgument);
}

// Counts the bytes of CPU tensors that live, and the most there were at a time.
class PeakMemory : public c10::Allocator {
 public:
  PeakMemory() : before_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(this, /*priority=*/100); }
  ~PeakMemory() override { c10::SetCPUAllocator(before_, 100); }
  c10::DataPtr allocate(std::size_t bytes) override {
    auto* const block = new Block{before_->allocate(bytes), bytes};
    now += static_cast<std::int64_t>(bytes);
    peak = std::max(peak, now.load());
    void* const data = block->memory.get();
    return {data, block, &PeakMemory::free, c10::Device(c10::kCPU)};
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  static inline std::atomic<std::int64_t> now = 0;
  static inline std::int64_t peak = 0;

 private:
  struct Block {
    c10::DataPtr memory;
    std::size_t bytes;
  };
  static void free(void* context) {
    auto* const block = static_cast<Block*>(context);
    now -= static_cast<std::int64_t>(block->bytes);
    delete block;
  }
  c10::Allocator* before_;
};

TEST(Checkpoint, A64LayerNetworkNeedsLessThanAThirdOfTheMemory) {
  nn::Sequential model;
  for (int i = 0; i < 64; ++i) {
    model->push_back(nn::Linear(16, 16));
    model->push_back(nn::Tanh());
  }
  for (const at::Tensor& p : model->parameters()) p.mutable_grad() = torch::zeros_like(p);
  const at::Tensor x = torch::randn({512, 16});
  static PeakMemory memory;  // tensors that it made may outlive this test
  const auto peak_of = [&](auto forward) {
    const std::int64_t before = PeakMemory::now;
    PeakMemory::peak = before;
    forward().mean().backward();
    EXPECT_LT(PeakMemory::now - before, 4096);  // nothing is left behind
    return static_cast<double>(PeakMemory::peak - before);
  };
  const double plain = peak_of([&] { return model->forward(x); });
  const double saved = peak_of([&] { return checkpoint_sequential(model, 8, x); });
  EXPECT_GT(plain, 64.0 * 512 * 16 * sizeof(float));  // at least one tensor per layer
  EXPECT_LE(saved, 0.3 * plain);
  std::vector<nn::Sequential> quarters(4);  // nested: 4 parts of 4 parts of 4 layers
  for (std::size_t i = 0; i < 128; ++i)
    quarters[i / 32]->push_back(*(model->begin() + static_cast<std::ptrdiff_t>(i)));
  const double nested = peak_of([&] {
    at::Tensor y = x;
    for (auto& quarter : quarters) {
      y = checkpoint([quarter](const at::Tensor& in) { return checkpoint_sequential(quarter, 4, in); }, y);
    }
    return y;
  });
  EXPECT_LT(nested, saved);
  RecordProperty("plain_bytes", std::to_string(plain));
  RecordProperty("checkpointed_share", std::to_string(saved / plain));
  RecordProperty("nested_share", std::to_string(nested / plain));
}

}  // namespace
}  // namespace lockstep
