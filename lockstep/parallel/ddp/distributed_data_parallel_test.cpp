// The wrapper itself, in one process: forms of construction, what is refused, state dicts, when forward
// communicates.
#include "lockstep/parallel/ddp/distributed_data_parallel.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/parallel/replicas/verify_models.h"
#include "testing/fake_ddp.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::fake_group;
using ::testing::HasSubstr;
using testing::one_bucket;
using ::testing::Optional;
using ::testing::ThrowsMessage;

struct BlockImpl : torch::nn::Module {
  BlockImpl()
      : fc(register_module("fc", torch::nn::Linear(2, 3))),
        norm(register_module("norm", torch::nn::BatchNorm1d(3))) {}
  torch::Tensor forward(const torch::Tensor& x) { return norm(fc(x)); }
  torch::nn::Linear fc;
  torch::nn::BatchNorm1d norm;
};
TORCH_MODULE(Block);

struct TwoHeads : torch::nn::Module {
  TwoHeads()
      : a(register_module("a", torch::nn::Linear(2, 1))), b(register_module("b", torch::nn::Linear(2, 1))) {}
  std::pair<torch::Tensor, torch::Tensor> forward(const torch::Tensor& x, double scale) {
    return {a(x), b(x) * scale};
  }
  torch::nn::Linear a, b;
};

TEST(DistributedDataParallel, WrapsEveryFormOfModel) {
  const torch::Tensor x = torch::ones({4, 2});
  Block holder;
  DistributedDataParallel from_holder(holder, one_bucket(fake_group()));
  static_assert(std::is_same_v<decltype(from_holder), DistributedDataParallel<BlockImpl>>);
  EXPECT_EQ(from_holder->forward(x).sizes(), (std::vector<std::int64_t>{4, 3}));
  EXPECT_EQ(from_holder.forward(x).sizes(), (std::vector<std::int64_t>{4, 3}));
  EXPECT_EQ(from_holder(x).sizes(), (std::vector<std::int64_t>{4, 3}));
  EXPECT_EQ(from_holder.module(), holder.ptr());

  DistributedDataParallel from_pointer(std::make_shared<TwoHeads>(), one_bucket(fake_group()));
  static_assert(std::is_same_v<decltype(from_pointer), DistributedDataParallel<TwoHeads>>);
  auto [a, b] = from_pointer->forward(x, 2.0);
  (a.sum() + b.sum()).backward();
  EXPECT_EQ(from_pointer.stats().reductions, 1u);

  TwoHeads on_the_stack;
  DistributedDataParallel from_module(on_the_stack, one_bucket(fake_group()));
  static_assert(std::is_same_v<decltype(from_module), DistributedDataParallel<TwoHeads>>);
  EXPECT_EQ(from_module->parameters().size(), 4u);

  torch::nn::Sequential sequence(torch::nn::Linear(2, 3), torch::nn::ReLU());
  DistributedDataParallel from_sequence(sequence, one_bucket(fake_group()));
  EXPECT_EQ(from_sequence->forward(x).sizes(), (std::vector<std::int64_t>{4, 3}));

  const torch::Tensor w = torch::ones({2, 1}, torch::requires_grad());
  DistributedDataParallel from_tensors(NamedTensors{{"w", w}}, {}, one_bucket(fake_group()));
  from_tensors.forward([&] { return x.mm(w).sum(); }).backward();
  EXPECT_EQ(w.grad().sum().item<float>(), 8.0F);
}

TEST(DistributedDataParallel, PassesReferencesAndMoveOnlyArgumentsThrough) {
  struct Fussy : torch::nn::Module {
    Fussy() { register_parameter("w", torch::ones({1})); }
    std::unique_ptr<int> forward(std::unique_ptr<int> in, int& calls) {
      ++calls;
      return in;
    }
  };
  DistributedDataParallel ddp(std::make_shared<Fussy>(), one_bucket(fake_group()));
  int calls = 0;
  EXPECT_EQ(*ddp.forward(std::make_unique<int>(7), calls), 7);
  EXPECT_EQ(calls, 1);
}

TEST(DistributedDataParallel, IsMovable) {
  auto backend = fake_group();
  Block net;
  auto make = [&] { return DistributedDataParallel(net, one_bucket(backend)); };
  DistributedDataParallel ddp = make();
  DistributedDataParallel moved = std::move(ddp);
  moved->forward(torch::ones({4, 2})).sum().backward();
  EXPECT_EQ(moved.stats().reductions, 1u);
}

TEST(DistributedDataParallel, CommunicatesInForwardOnlyWhenTrainingWithGradients) {
  auto backend = fake_group();
  Block net;
  DistributedDataParallel ddp(net, one_bucket(backend));
  const torch::Tensor x = torch::ones({4, 2});
  const auto broadcasts_of = [&](const auto& action) {
    const int before = static_cast<int>(backend->started.size());
    action();
    return static_cast<int>(backend->started.size()) - before;
  };
  EXPECT_EQ(broadcasts_of([&] { ddp->forward(x); }), 1);  // three buffers of two dtypes in one broadcast
  EXPECT_EQ(broadcasts_of([&] {
              const torch::NoGradGuard no_grad;
              ddp->forward(x);
            }),
            0);
  EXPECT_EQ(broadcasts_of([&] {
              auto guard = ddp.no_sync();
              ddp->forward(x);
            }),
            0);
  EXPECT_EQ(broadcasts_of([&] { ddp->forward(x); }), 1);
  ddp->eval();
  EXPECT_FALSE(net->norm->is_training());
  EXPECT_EQ(broadcasts_of([&] { ddp->forward(x); }), 0);
  ddp->train();
  EXPECT_TRUE(net->norm->is_training());

  auto options = one_bucket(backend);
  options.broadcast_buffers = false;
  DistributedDataParallel without(net, options);
  EXPECT_EQ(broadcasts_of([&] { without->forward(x); }), 0);
}

TEST(DistributedDataParallel, BroadcastingBuffersLeavesSavedGraphsValid) {
  Block net;
  DistributedDataParallel ddp(net, one_bucket(fake_group()));
  const torch::Tensor first = ddp->forward(torch::rand({4, 2}));
  const torch::Tensor second = ddp->forward(torch::rand({4, 2}));
  (first.sum() + second.sum()).backward();
  EXPECT_EQ(ddp.stats().reductions, 1u);
}

TEST(DistributedDataParallel, CountsASharedParameterOnceAndLeavesAFrozenOneAlone) {
  auto backend = fake_group();
  const torch::Tensor tied = torch::full({1}, 2.0, torch::requires_grad());
  const torch::Tensor frozen = torch::full({1}, 3.0);
  DistributedDataParallel ddp(NamedTensors{{"in", tied}, {"scale", frozen}, {"out", tied}}, {},
                              one_bucket(backend));
  EXPECT_EQ(ddp.parameters().size(), 2u);
  EXPECT_EQ(ddp.state_dict().size(), 3u);
  EXPECT_EQ(ddp.stats().bucket_bytes, sizeof(float));
  ddp.forward([&] { return tied * frozen * tied; }).backward();
  EXPECT_EQ(tied.grad().item<float>(), 12.0F);
  EXPECT_FALSE(frozen.grad().defined());
}

TEST(DistributedDataParallel, NamesStateWithoutAPrefixAndStripsOneOnLoad) {
  Block net;
  DistributedDataParallel ddp(net, one_bucket(fake_group()));
  const auto state = ddp.state_dict();
  EXPECT_THAT(state.keys(), ElementsAre("fc.weight", "fc.bias", "norm.weight", "norm.bias",
                                        "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"));
  EXPECT_THAT(ddp->named_parameters().keys(),
              ElementsAre("fc.weight", "fc.bias", "norm.weight", "norm.bias"));

  torch::OrderedDict<std::string, torch::Tensor> from_python;
  for (const auto& item : state)
    from_python.insert("module." + item.key(), torch::full_like(item.value(), 3));
  ddp.load_state_dict(from_python);
  EXPECT_TRUE(torch::equal(net->fc->weight, torch::full({3, 2}, 3.0)));
  EXPECT_EQ(net->norm->num_batches_tracked.item<int>(), 3);

  torch::OrderedDict<std::string, torch::Tensor> wrong;
  wrong.insert("fc.weight", torch::ones({2, 2}));
  EXPECT_THAT([&] { ddp.load_state_dict(wrong); },
              ThrowsMessage<InvalidArgument>(
                  AllOf(HasSubstr("fc.weight"), HasSubstr("[3, 2]"), HasSubstr("[2, 2]"))));
  torch::OrderedDict<std::string, torch::Tensor> unknown;
  unknown.insert("fc.wait", torch::ones({2, 2}));
  EXPECT_THAT([&] { ddp.load_state_dict(unknown); }, ThrowsMessage<InvalidArgument>(HasSubstr("fc.wait")));
  torch::OrderedDict<std::string, torch::Tensor> short_of;
  short_of.insert("fc.weight", torch::ones({3, 2}));
  EXPECT_THAT([&] { ddp.load_state_dict(short_of); },
              ThrowsMessage<InvalidArgument>(HasSubstr("lacks \"fc.bias\"")));
  EXPECT_TRUE(torch::equal(net->fc->weight, torch::full({3, 2}, 3.0)));
}

TEST(DistributedDataParallel, RefusesWhatItCannotTrain) {
  const torch::Tensor frozen = torch::ones({1});
  const torch::Tensor leaf = torch::ones({1}, torch::requires_grad());
  const auto wrap = [](const NamedTensors& parameters,
                       DistributedDataParallelOptions options = one_bucket(fake_group())) {
    return [=] { DistributedDataParallel ddp(parameters, NamedTensors(), options); };
  };
  EXPECT_THAT(wrap({{"w", frozen}}),
              ThrowsMessage<InvalidArgument>(HasSubstr("no parameter that requires a gradient")));
  EXPECT_THAT(wrap({{"w", leaf * 2}}),
              ThrowsMessage<InvalidArgument>(HasSubstr("\"w\" is the result of an operation")));
  EXPECT_THAT(wrap({{"w", torch::Tensor()}}),
              ThrowsMessage<InvalidArgument>(HasSubstr("\"w\" is an undefined tensor")));
  EXPECT_THAT(wrap({{"w", torch::eye(2).to_sparse()}}),
              ThrowsMessage<InvalidArgument>(HasSubstr("only dense")));
  auto options = one_bucket(fake_group());
  options.bucket_cap_mb = 0;
  EXPECT_THAT(wrap({{"w", leaf}}, options), ThrowsMessage<InvalidArgument>(HasSubstr("bucket_cap_mb is 0")));
  options = one_bucket(fake_group());
  options.device_ids = {1};
  EXPECT_THAT(wrap({{"w", leaf}}, options),
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("GPU 1"), HasSubstr("leave device_ids empty"))));
  options = one_bucket(fake_group());
  options.backward_passes_per_step = 0;
  EXPECT_THAT(wrap({{"w", leaf}}, options), ThrowsMessage<InvalidArgument>(HasSubstr("at least 1")));
}

TEST(DistributedDataParallel, UsesASmallFirstBucketUnlessTheCapIsGiven) {
  struct Wide : torch::nn::Module {
    Wide() {
      for (int i = 0; i < 8; ++i)
        register_parameter("w" + std::to_string(i), torch::ones({512 * 1024}));  // 2 MiB each
    }
  };
  const auto buckets_of = [](DistributedDataParallelOptions options) {
    options.process_group = ProcessGroup(fake_group());
    return DistributedDataParallel(std::make_shared<Wide>(), options).stats().buckets;
  };
  EXPECT_EQ(buckets_of({}), 2u);  // 2 MiB, 14 MiB
  EXPECT_EQ(buckets_of({.bucket_cap_mb = 25}), 1u);
  EXPECT_EQ(buckets_of({.bucket_cap_mb = 8}), 2u);
  EXPECT_EQ(buckets_of({.bucket_cap_mb = 8, .first_bucket_mb = 1}), 3u);  // 2, 8, 6 MiB
}

// ------------------------------------------------------------------------------------------- what ranks tell
// each other

TEST(VerifyModels, NamesTheFirstDifferenceAndBothSides) {
  const auto describe = [](std::vector<std::int64_t> shape, const char* name = "fc.weight",
                           at::ScalarType type = at::kFloat) {
    const torch::Tensor w = torch::ones(shape, torch::TensorOptions(type).requires_grad(true));
    return describe_model({{"a", torch::ones({1}, torch::requires_grad())}, {name, w}},
                          {{"mean", torch::ones({3})}}, "cap 25");
  };
  const std::string same = describe({2, 3});
  EXPECT_EQ(first_difference({same, same, same}), std::nullopt);
  EXPECT_THAT(first_difference({same, same, describe({2, 4})}),
              Optional(std::string(
                  "parameter \"fc.weight\" is [2, 3] float32 on rank 0 but [2, 4] float32 on rank 2")));
  EXPECT_THAT(first_difference({same, describe({2, 3}, "fc.weight", at::kDouble)}),
              Optional(std::string(
                  "parameter \"fc.weight\" is [2, 3] float32 on rank 0 but [2, 3] float64 on rank 1")));
  EXPECT_THAT(
      first_difference({same, describe({2, 3}, "fc\tweight\n")}),
      Optional(std::string("rank 0 has parameter \"fc.weight\" [2, 3] float32 where rank 1 has parameter "
                           "\"fc\\x09weight\\x0a\" [2, 3] float32")));
  const std::string fewer = describe_model({{"a", torch::ones({1}, torch::requires_grad())}},
                                           {{"mean", torch::ones({3})}}, "cap 25");
  EXPECT_THAT(first_difference({same, fewer}), Optional(HasSubstr("(2 parameters on rank 0, 1 on rank 1)")));
  const std::string no_buffer =
      describe_model({{"a", torch::ones({1}, torch::requires_grad())}}, {}, "cap 25");
  EXPECT_THAT(first_difference({fewer, no_buffer}),
              Optional(std::string("rank 0 has buffer \"mean\" [3] float32, which rank 1 does not have")));
  EXPECT_THAT(first_difference({describe_model({}, {}, "cap 1"), describe_model({}, {}, "cap 2")}),
              Optional(std::string("option \"settings\" is cap 1 on rank 0 but cap 2 on rank 1")));
  EXPECT_THAT(
      first_difference({describe_model({{"a", torch::ones({1})}}, {}, ""),
                        describe_model({{"a", torch::ones({1}, torch::requires_grad())}}, {}, "")}),
      Optional(std::string("parameter \"a\" is [1] float32 frozen on rank 0 but [1] float32 on rank 1")));
}

}  // namespace
}  // namespace lockstep
