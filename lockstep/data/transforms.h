// Transforms of images, with torchvision's names, and the data set of transformed images: augmentation for
// training.
//
//   namespace transforms = lockstep::transforms;
//   const CIFAR10 images(find_cifar10(), Split::TRAIN);
//   const auto train = transforms::transformed(images, transforms::Compose({
//       transforms::RandomCrop(32, {.padding = 4}),
//       transforms::RandomHorizontalFlip(),
//       transforms::ToTensor(),
//       transforms::Normalize({0.5, 0.5, 0.5}, {0.5, 0.5, 0.5})}), seed);
//   auto loader = make_data_loader(train, sampler, {.batch_size = 128, .workers = 4});
//
// A transform is any function of an image, (channels, rows, columns), and random numbers. A program may write
// its own:
//
//   const auto sometimes_negative = [](const at::Tensor& image, SampleRandom& random) {
//     return random.uniform() < 0.1 ? 1 - image : image;
//   };
//
// Same image  (seed, epoch, index) decide every random choice. So an augmented image is the same on any rank
//             and loader thread, for any number of them, and in a run that resumes from a checkpoint. In
//             Python it depends on the number of workers. Transforms draw one after the other, so one added
//             at the end changes no other. An index that a DistributedSampler repeats to fill the last step
//             gives the same image twice.
// Input       is never changed in place. RandomCrop and RandomHorizontalFlip take any dtype; ToTensor takes
//             uint8; Normalize takes float32.
// Fails       InvalidArgument: at once for arguments out of range, later for an image of another kind.
// Threads     A Transform is called on several threads at once. Those here run plain loops, so no thread pool
//             starts.
#pragma once

#include <array>
#include <functional>
#include <utility>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/sample_random.h"

namespace lockstep::transforms {

using Transform = std::function<at::Tensor(const at::Tensor& image, SampleRandom& random)>;

// Runs its transforms one after the other.
class Compose {
 public:
  explicit Compose(std::vector<Transform> transforms);
  at::Tensor operator()(const at::Tensor& image, SampleRandom& random) const;

 private:
  std::vector<Transform> transforms_;
};

struct RandomCropOptions {
  std::int64_t padding = 0;  // number of zeros on each of the four sides before cropping
};

// Crops a square of `size` x `size` pixels at a random place.
class RandomCrop {
 public:
  explicit RandomCrop(std::int64_t size, const RandomCropOptions& options = {});
  at::Tensor operator()(const at::Tensor& image, SampleRandom& random) const;

 private:
  std::int64_t size_;
  std::int64_t padding_;
};

// Exchanges left and right with probability p.
class RandomHorizontalFlip {
 public:
  explicit RandomHorizontalFlip(double p = 0.5);
  at::Tensor operator()(const at::Tensor& image, SampleRandom& random) const;

 private:
  double p_;
};

// Converts uint8 from 0 to 255 into float32 from 0 to 1.
struct ToTensor {
  at::Tensor operator()(const at::Tensor& image, SampleRandom& random) const;
};

// (x - mean) / std, channel by channel.
class Normalize {
 public:
  Normalize(std::vector<double> mean, std::vector<double> std);
  template <std::size_t N>  // CIFAR10::MEAN and CIFAR10::STD
  Normalize(const std::array<float, N>& mean, const std::array<float, N>& std)
      : Normalize(std::vector<double>(mean.begin(), mean.end()),
                  std::vector<double>(std.begin(), std.end())) {}
  at::Tensor operator()(const at::Tensor& image, SampleRandom& random) const;

 private:
  std::vector<double> mean_;
  std::vector<double> std_;
};

// A source that can be transformed: an ImageDataset, or any class with these three members.
template <typename T>
concept ImageSource = requires(const T& source, std::int64_t index) {
  { source.size() } -> std::convertible_to<std::int64_t>;
  { source.image(index) } -> std::convertible_to<at::Tensor>;
  { source.target(index) } -> std::convertible_to<std::int64_t>;
};

// Transforms and stacks the items number `indices` of a source. Used by TransformedDataset.
Batch transformed_batch(std::span<const std::int64_t> indices, std::int64_t epoch, std::uint64_t seed,
                        const Transform& transform, const std::function<at::Tensor(std::int64_t)>& image,
                        const std::function<std::int64_t(std::int64_t)>& target);

// data: the transformed images, which must have one shape and dtype within a batch. target: int64 [n].
template <ImageSource Source> class TransformedDataset {
 public:
  TransformedDataset(Source source, Transform transform, std::uint64_t seed)
      : source_(std::move(source)), transform_(std::move(transform)), seed_(seed) {}

  std::int64_t size() const { return source_.size(); }
  const Source& source() const { return source_; }
  Batch get_batch(std::span<const std::int64_t> indices, std::int64_t epoch) const {
    return transformed_batch(
        indices, epoch, seed_, transform_, [this](std::int64_t i) { return source_.image(i); },
        [this](std::int64_t i) { return source_.target(i); });
  }

 private:
  Source source_;
  Transform transform_;
  std::uint64_t seed_;
};

// `seed` is the same on every rank. The source is copied, which is cheap for those of this library.
template <ImageSource Source>
TransformedDataset<Source> transformed(Source source, Transform transform, std::uint64_t seed) {
  return TransformedDataset<Source>(std::move(source), std::move(transform), seed);
}

}  // namespace lockstep::transforms
