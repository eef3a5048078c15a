#include "lockstep/data/transforms.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/data_loader.h"

namespace lockstep::transforms {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Indices = std::vector<std::int64_t>;

at::Tensor picture(int channels = 3, int rows = 5, int columns = 7, at::ScalarType dtype = at::kByte) {
  return at::arange(1, channels * rows * columns + 1).reshape({channels, rows, columns}).to(dtype);
}

// 40 images of 3 x 6 x 6; image i has the pixels i, i + 1, ... and the target i + 100.
struct Pictures {
  std::int64_t size() const { return 40; }
  at::Tensor image(std::int64_t i) const { return at::arange(i, i + 108).reshape({3, 6, 6}).to(at::kByte); }
  std::int64_t target(std::int64_t i) const { return i + 100; }
};

// What libtorch cuts out of the padded image at (top, left).
at::Tensor cut(const at::Tensor& image, std::int64_t padding, std::int64_t size, std::int64_t top,
               std::int64_t left) {
  const at::Tensor padded = at::constant_pad_nd(image, {padding, padding, padding, padding}, 0);
  return padded.narrow(1, top, size).narrow(2, left, size);
}

TEST(RandomCrop, IsOneOfThePossibleCropsAndEachComesEquallyOften) {
  struct Kind {
    std::int64_t size, padding;
  };
  for (const auto [size, padding] : {Kind{5, 2}, Kind{3, 0}, Kind{9, 4}, Kind{2, 3}, Kind{5, 0}}) {
    for (const at::ScalarType dtype : {at::kByte, at::kFloat, at::kDouble}) {
      const at::Tensor image = picture(2, 5, 7, dtype);
      const RandomCrop crop(size, {.padding = padding});
      std::set<std::pair<std::int64_t, std::int64_t>> seen;
      const std::int64_t tops = 5 + 2 * padding - size + 1;
      const std::int64_t lefts = 7 + 2 * padding - size + 1;
      for (std::int64_t index = 0; index < 40 * tops * lefts; ++index) {
        SampleRandom random(1, 0, index);
        SampleRandom same(1, 0, index);
        const at::Tensor result = crop(image, random);
        const std::int64_t top = same.below(tops);
        const std::int64_t left = same.below(lefts);
        seen.emplace(top, left);
        ASSERT_TRUE(at::equal(result, cut(image, padding, size, top, left))) << top << ", " << left;
      }
      EXPECT_EQ(seen.size(), static_cast<std::size_t>(tops * lefts));
    }
  }
}

TEST(RandomCrop, TakesImagesThatAreNotContiguousAndLeavesThemAlone) {
  const at::Tensor image = picture().transpose(1, 2);
  const at::Tensor before = image.clone();
  SampleRandom random(1, 0, 0);
  SampleRandom same(1, 0, 0);
  EXPECT_TRUE(at::equal(RandomCrop(3)(image, random), RandomCrop(3)(image.contiguous(), same)));
  EXPECT_TRUE(at::equal(image, before));
}

TEST(RandomHorizontalFlip, FlipsWithItsProbability) {
  for (const at::ScalarType dtype : {at::kByte, at::kHalf, at::kFloat, at::kDouble}) {
    const at::Tensor image = picture(3, 2, 7, dtype);
    int flips = 0;
    for (std::int64_t index = 0; index < 1000; ++index) {
      SampleRandom random(2, 0, index);
      const at::Tensor result = RandomHorizontalFlip(0.3)(image, random);
      const bool flipped = at::equal(result, image.flip(2));
      ASSERT_TRUE(flipped || at::equal(result, image));
      flips += flipped ? 1 : 0;
    }
    EXPECT_NEAR(flips, 300, 5 * std::sqrt(1000 * 0.3 * 0.7));
    SampleRandom random(0, 0, 0);
    EXPECT_TRUE(at::equal(RandomHorizontalFlip(1)(image, random), image.flip(2)));
    EXPECT_TRUE(at::equal(RandomHorizontalFlip(0)(image, random), image));
  }
}

TEST(ToTensorAndNormalize, EqualWhatLibtorchComputes) {
  SampleRandom random(0, 0, 0);
  const at::Tensor pixels = at::arange(256).reshape({1, 16, 16}).to(at::kByte);
  EXPECT_TRUE(at::equal(ToTensor()(pixels, random), pixels.to(at::kFloat).div(255)));
  const at::Tensor image = ToTensor()(picture(2), random);
  const at::Tensor mean = at::tensor({0.4914F, 0.5F}).view({2, 1, 1});
  const at::Tensor std = at::tensor({0.2470F, 0.25F}).view({2, 1, 1});
  EXPECT_TRUE(at::equal(Normalize({0.4914, 0.5}, {0.2470, 0.25})(image, random), image.sub(mean).div(std)));
}

TEST(Compose, PassesImageAndRandomNumbersOn) {
  const at::Tensor image = picture();
  const Compose chain({RandomCrop(4, {.padding = 1}), RandomHorizontalFlip(),
                       [](const at::Tensor& x, SampleRandom& random) { return x + random.below(10); }});
  SampleRandom random(9, 8, 7);
  SampleRandom same(9, 8, 7);
  at::Tensor expected = RandomCrop(4, {.padding = 1})(image, same);
  expected = RandomHorizontalFlip()(expected, same);
  expected = expected + same.below(10);
  EXPECT_TRUE(at::equal(chain(image, random), expected));
  EXPECT_TRUE(at::equal(Compose({chain, ToTensor()})(image, random = SampleRandom(9, 8, 7)),
                        expected.to(at::kFloat).div(255)))
      << "a Compose is a transform";
}

Compose augmentation() {
  return Compose({RandomCrop(6, {.padding = 2}), RandomHorizontalFlip(), ToTensor(),
                  Normalize({0.1, 0.2, 0.3}, {0.4, 0.5, 0.6})});
}

TEST(Transformed, ABatchIsTheStackOfItsTransformedImages) {
  const auto dataset = transformed(Pictures(), augmentation(), 11);
  const Indices indices = {7, 39, 7};
  const Batch batch = dataset.get_batch(indices, 4);
  std::vector<at::Tensor> images;
  for (const std::int64_t index : indices) {
    SampleRandom random(11, 4, index);
    images.push_back(augmentation()(Pictures().image(index), random));
  }
  EXPECT_TRUE(at::equal(batch.data, at::stack(images)));
  EXPECT_TRUE(at::equal(batch.target, at::tensor({107, 139, 107}, at::kLong)));
  EXPECT_FALSE(at::equal(dataset.get_batch(indices, 5).data, batch.data)) << "another epoch";
  EXPECT_FALSE(at::equal(transformed(Pictures(), augmentation(), 12).get_batch(indices, 4).data, batch.data));
}

// Every image of an epoch by its index, however the work was divided.
std::map<std::int64_t, at::Tensor> epoch_of(int ranks, int workers, std::int64_t batch_size) {
  const auto dataset = transformed(Pictures(), augmentation(), 11);
  std::map<std::int64_t, at::Tensor> items;
  for (int rank = 0; rank < ranks; ++rank) {
    DistributedSampler sampler(dataset.size(), {.num_replicas = ranks, .rank = rank});
    sampler.set_epoch(3);
    for (auto& batch : make_data_loader(dataset, sampler, {.batch_size = batch_size, .workers = workers}))
      for (std::int64_t i = 0; i < batch.target.size(0); ++i)
        items[batch.target[i].item<std::int64_t>()] = batch.data[i];
  }
  return items;
}

TEST(Transformed, AnImageDoesNotDependOnRanksWorkersAndBatchSize) {
  const auto alone = epoch_of(1, 0, 40);
  ASSERT_EQ(alone.size(), 40U);
  struct Division {
    int ranks, workers;
    std::int64_t batch_size;
  };
  for (const auto [ranks, workers, batch_size] :
       {Division{1, 1, 7}, Division{1, 4, 1}, Division{2, 2, 3}, Division{3, 3, 5}}) {
    const auto divided = epoch_of(ranks, workers, batch_size);
    ASSERT_EQ(divided.size(), 40U);
    for (const auto& [target, image] : divided) EXPECT_TRUE(at::equal(image, alone.at(target))) << target;
  }
}

template <typename Call> std::string transform_refusal(const Call& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Transforms, RefuseArgumentsOutOfRange) {
  EXPECT_THAT(transform_refusal([] { RandomCrop(0); }), HasSubstr("size is 0"));
  EXPECT_THAT(transform_refusal([] { RandomCrop(3, {.padding = -1}); }), HasSubstr("padding is -1"));
  EXPECT_THAT(transform_refusal([] { RandomHorizontalFlip(1.5); }), HasSubstr("p is 1.5, expected 0 to 1"));
  EXPECT_THAT(transform_refusal([] { RandomHorizontalFlip(std::nan("")); }), HasSubstr("p is nan"));
  EXPECT_THAT(transform_refusal([] { Normalize({0.5}, {0.5, 0.5}); }), HasSubstr("1 means and 2 deviations"));
  EXPECT_THAT(transform_refusal([] { Normalize({0.5}, {0.0}); }), HasSubstr("not above 0"));
  EXPECT_THAT(transform_refusal([] { Compose({ToTensor(), nullptr}); }), HasSubstr("empty"));
}

TEST(Transforms, RefuseImagesTheyWereNotMadeFor) {
  SampleRandom random(0, 0, 0);
  EXPECT_THAT(transform_refusal([&] { RandomCrop(8)(picture(), random); }),
              HasSubstr("8 x 8 pixels do not fit into an image of 5 x 7 with a padding of 0"));
  EXPECT_THAT(transform_refusal([&] { RandomCrop(2)(picture()[0], random); }),
              HasSubstr("got shape [5, 7] on cpu"));
  EXPECT_THAT(transform_refusal([&] { RandomHorizontalFlip()(at::Tensor(), random); }),
              HasSubstr("an undefined tensor"));
  EXPECT_THAT(transform_refusal([&] { ToTensor()(picture(3, 5, 7, at::kFloat), random); }),
              HasSubstr("expected uint8 pixels, got Float"));
  EXPECT_THAT(transform_refusal([&] { Normalize({0.5}, {0.5})(picture(1), random); }),
              HasSubstr("ToTensor goes before it"));
  EXPECT_THAT(transform_refusal([&] { Normalize({0.5}, {0.5})(picture(3, 5, 7, at::kFloat), random); }),
              HasSubstr("3 channels, and it was made for 1"));
  const auto uneven = transformed(
      Pictures(), [](const at::Tensor& x, SampleRandom& r) { return x.narrow(1, 0, 1 + r.below(5)); }, 0);
  EXPECT_THAT(transform_refusal([&] {
                uneven.get_batch(Indices{0, 1, 2, 3, 4, 5}, 0);
              }),
              AllOf(HasSubstr("images of one batch differ: item 0 is Byte"), HasSubstr("item")));
}

}  // namespace
}  // namespace lockstep::transforms
