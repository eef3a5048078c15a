#include "lockstep/parallel/tensor_parallel/cross_entropy.h"

#include <ATen/ATen.h>

#include <cmath>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/parallel/tensor_parallel/parameter_piece.h"
#include "testing/ranks.h"
#include "testing/tensor_near.h"
#include "testing/tensors.h"

// Against at::cross_entropy_loss on all classes.
namespace lockstep::tensor_parallel {
namespace vocab_cross_entropy {
namespace {

using testing::expect_near;
using ::testing::HasSubstr;
using testing::random_values;
using ::testing::ThrowsMessage;

constexpr std::int64_t IGNORED = -100;

at::Tensor leaf(const at::Tensor& tensor) { return tensor.detach().clone().set_requires_grad(true); }

at::Tensor own_classes(const at::Tensor& logits, const ProcessGroup& group) {
  const Stretch range = vocab_range(logits.size(-1), group.rank(), group.size());
  return logits.narrow(-1, range.begin, range.size);
}

struct Setting {
  std::int64_t vocab_size = 12;
  double smoothing = 0;
  at::Reduction::Reduction reduction = at::Reduction::Mean;
  at::ScalarType type = at::kDouble;
  double tolerance = 1e-14;
};

void compare(const Setting& setting, const at::Tensor& targets, const ProcessGroup& group) {
  const at::Tensor data = random_values({targets.numel(), setting.vocab_size}, 1) * 5 + 1000;  // not near 0
  const at::Tensor logits = leaf(data.to(setting.type));
  const at::Tensor whole = at::cross_entropy_loss(logits.to(at::kDouble), targets.flatten(), {},
                                                  setting.reduction, IGNORED, setting.smoothing);
  const at::Tensor expected = setting.reduction == at::Reduction::None ? whole.view(targets.sizes()) : whole;
  std::vector<std::int64_t> sizes = targets.sizes().vec();
  sizes.push_back(-1);
  const at::Tensor own = leaf(own_classes(logits, group).reshape(sizes));
  const at::Tensor loss = vocab_parallel_cross_entropy(own, targets, group,
                                                       {.vocab_size = setting.vocab_size,
                                                        .label_smoothing = setting.smoothing,
                                                        .reduction = setting.reduction});
  expect_near(loss, expected, setting.tolerance, "loss");
  const at::Tensor slope = random_values(expected.sizes(), 2);
  (loss * slope).sum().backward();
  (expected * slope).sum().backward();
  expect_near(own.grad().flatten(0, -2), own_classes(logits.grad(), group), setting.tolerance * 10,
              "gradient");
}

RANKS_TEST(VocabParallelCrossEntropy, IsThatOfAllClasses, Ranks(1, 2, 3, 4), Backends("shm", "tcp")) {
  const at::Tensor targets = at::tensor(std::vector<std::int64_t>{0, 11, 5, 6, 3, 8}, at::kLong).view({2, 3});
  for (const auto reduction : {at::Reduction::Mean, at::Reduction::Sum, at::Reduction::None})
    for (const double smoothing : {0.0, 0.1, 1.0})
      for (const std::int64_t vocab_size : {12, 13})
        compare({.vocab_size = vocab_size, .smoothing = smoothing, .reduction = reduction}, targets, world());
  compare({.type = at::kFloat, .tolerance = 1e-6}, targets, world());
  compare({.smoothing = 0.1, .type = at::kBFloat16, .tolerance = 1e-2}, targets, world());
}

RANKS_TEST(VocabParallelCrossEntropy, SkipsIgnoredTargets, Ranks(1, 2, 3, 4)) {
  const at::Tensor targets = at::tensor(std::vector<std::int64_t>{IGNORED, 11, 5, IGNORED}, at::kLong);
  for (const auto reduction : {at::Reduction::Mean, at::Reduction::Sum, at::Reduction::None})
    for (const double smoothing : {0.0, 0.2})
      compare({.smoothing = smoothing, .reduction = reduction}, targets, world());
  const at::Tensor none = at::full({3}, IGNORED, at::kLong);
  const at::Tensor own = leaf(at::ones({3, 2}));
  EXPECT_TRUE(vocab_parallel_cross_entropy(own, none, world()).isnan().item<bool>());
  const at::Tensor sum = vocab_parallel_cross_entropy(own, none, world(), {.reduction = at::Reduction::Sum});
  EXPECT_EQ(sum.item<float>(), 0);
  sum.backward();
  EXPECT_TRUE(own.grad().eq(0).all().item<bool>());
}

// By hand: all n classes have one logit, so the loss is log n, and the gradient 1 / n - [target].
RANKS_TEST(VocabParallelCrossEntropy, ByHand, Ranks(1, 2, 3, 4)) {
  const at::Tensor own = leaf(at::full({1, 1}, 3.0));
  const at::Tensor loss = vocab_parallel_cross_entropy(own, at::full({1}, size() - 1, at::kLong), world());
  EXPECT_NEAR(loss.item<double>(), std::log(size()), 1e-6);
  loss.backward();
  EXPECT_NEAR(own.grad().item<double>(), 1.0 / size() - (rank() == size() - 1 ? 1 : 0), 1e-6);
}

RANKS_TEST(VocabParallelCrossEntropy, SaysWhatDoesNotFit, Ranks(1, 2)) {
  const auto refuses = [&](const at::Tensor& logits, const at::Tensor& targets,
                           const VocabParallelCrossEntropyOptions& options, const std::string& why) {
    EXPECT_THAT([&] { vocab_parallel_cross_entropy(logits, targets, world(), options); },
                ThrowsMessage<InvalidArgument>(HasSubstr(why)));
  };
  const at::Tensor logits = at::ones({2, 3}), targets = at::zeros({2}, at::kLong);
  refuses(logits, at::zeros({3}, at::kLong), {}, "logits have sizes [2, 3] and targets [3]");
  refuses(logits, at::zeros({2}, at::kInt), {}, "targets are Int, expected int64");
  refuses(logits, targets + 3 * size(), {}, "is not a class between 0 and");
  refuses(logits, targets - 1, {}, "target -1 is not a class");
  refuses(logits, targets, {.label_smoothing = 1.5}, "label_smoothing is 1.5");
  refuses(logits, targets, {.vocab_size = 3 * size() + 7}, "the logits have 3 classes");
}

}  // namespace
}  // namespace vocab_cross_entropy
}  // namespace lockstep::tensor_parallel
