#include "lockstep/data/transforms.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

// Plain loops, no tensor operations, because loader threads must not start thread pools of their own.
namespace lockstep::transforms {
namespace {

void check_image(const char* transform, const at::Tensor& image) {
  if (!image.defined() || image.dim() != 3 || !image.device().is_cpu())
    throw InvalidArgument(
        lockstep::str(transform, ": expected an image (channels, rows, columns) on the CPU, got ",
                      image.defined() ? lockstep::str("shape ", image.sizes(), " on ", image.device())
                                      : "an undefined tensor"));
}

at::Tensor empty_like_type(at::IntArrayRef sizes, const at::Tensor& image) {
  return at::empty(sizes, at::TensorOptions(image.scalar_type()));
}

void reverse_copy_elements(const char* from, std::int64_t count, std::size_t size, char* to) {
  for (std::int64_t i = count; i-- > 0; to += size)
    std::memcpy(to, from + static_cast<std::size_t>(i) * size, size);
}

}  // namespace

Compose::Compose(std::vector<Transform> transforms) : transforms_(std::move(transforms)) {
  if (!std::all_of(transforms_.begin(), transforms_.end(),
                   [](const Transform& one) { return one != nullptr; }))
    throw InvalidArgument("Compose: one of the transforms is empty");
}

at::Tensor Compose::operator()(const at::Tensor& image, SampleRandom& random) const {
  at::Tensor result = image;
  for (const Transform& transform : transforms_) result = transform(result, random);
  return result;
}

RandomCrop::RandomCrop(std::int64_t size, const RandomCropOptions& options)
    : size_(size), padding_(options.padding) {
  if (size_ < 1) throw InvalidArgument(lockstep::str("RandomCrop: size is ", size_, ", expected 1 or more"));
  if (padding_ < 0)
    throw InvalidArgument(lockstep::str("RandomCrop: padding is ", padding_, ", expected 0 or more"));
}

at::Tensor RandomCrop::operator()(const at::Tensor& image, SampleRandom& random) const {
  check_image("RandomCrop", image);
  const std::int64_t rows = image.size(1);
  const std::int64_t columns = image.size(2);
  if (std::min(rows, columns) + 2 * padding_ < size_)
    throw InvalidArgument(lockstep::str("RandomCrop: ", size_, " x ", size_,
                                        " pixels do not fit into an image of ", rows, " x ", columns,
                                        " with a padding of ", padding_));
  const std::int64_t top = random.below(rows + 2 * padding_ - size_ + 1) - padding_;
  const std::int64_t left = random.below(columns + 2 * padding_ - size_ + 1) - padding_;
  const at::Tensor source = image.contiguous();
  at::Tensor result = empty_like_type({image.size(0), size_, size_}, image);
  const auto size = static_cast<std::int64_t>(image.element_size());
  const auto* const from = static_cast<const char*>(source.const_data_ptr());
  auto* to = static_cast<char*>(result.mutable_data_ptr());
  // columns of the result before this one,
  const std::int64_t first = std::clamp<std::int64_t>(-left, 0, size_);
  const std::int64_t last =
      std::clamp<std::int64_t>(columns - left, first, size_);  // and from this one on, are padding
  for (std::int64_t channel = 0; channel < image.size(0); ++channel) {
    for (std::int64_t y = top; y < top + size_; ++y, to += size_ * size) {
      const bool inside = y >= 0 && y < rows;
      const std::int64_t begin = inside ? first : size_;
      const std::int64_t end = inside ? last : size_;
      std::memset(to, 0, static_cast<std::size_t>(begin * size));
      if (begin < end)
        std::memcpy(to + begin * size, from + ((channel * rows + y) * columns + left + begin) * size,
                    static_cast<std::size_t>((end - begin) * size));
      std::memset(to + end * size, 0, static_cast<std::size_t>((size_ - end) * size));
    }
  }
  return result;
}

RandomHorizontalFlip::RandomHorizontalFlip(double p) : p_(p) {
  if (!(p >= 0 && p <= 1))
    throw InvalidArgument(lockstep::str("RandomHorizontalFlip: p is ", p, ", expected 0 to 1"));
}

at::Tensor RandomHorizontalFlip::operator()(const at::Tensor& image, SampleRandom& random) const {
  check_image("RandomHorizontalFlip", image);
  if (random.uniform() >= p_) return image;
  const at::Tensor source = image.contiguous();
  at::Tensor result = empty_like_type(image.sizes(), image);
  const auto size = static_cast<std::size_t>(image.element_size());
  const std::int64_t columns = image.size(2);
  const auto* from = static_cast<const char*>(source.const_data_ptr());
  auto* to = static_cast<char*>(result.mutable_data_ptr());
  const std::size_t row = static_cast<std::size_t>(columns) * size;
  for (std::int64_t i = 0; i < image.size(0) * image.size(1); ++i, from += row, to += row)
    reverse_copy_elements(from, columns, size, to);
  return result;
}

at::Tensor ToTensor::operator()(const at::Tensor& image, SampleRandom& /*random*/) const {
  check_image("ToTensor", image);
  if (image.scalar_type() != at::kByte)
    throw InvalidArgument(lockstep::str("ToTensor: expected uint8 pixels, got ", image.scalar_type()));
  const at::Tensor source = image.contiguous();
  at::Tensor result = at::empty(image.sizes(), at::TensorOptions(at::kFloat));
  const auto* const from = source.const_data_ptr<std::uint8_t>();
  std::transform(from, from + image.numel(), result.mutable_data_ptr<float>(),
                 [](std::uint8_t pixel) { return static_cast<float>(pixel) / 255.0F; });
  return result;
}

Normalize::Normalize(std::vector<double> mean, std::vector<double> std)
    : mean_(std::move(mean)), std_(std::move(std)) {
  if (mean_.empty() || mean_.size() != std_.size())
    throw InvalidArgument(lockstep::str("Normalize: ", mean_.size(), " means and ", std_.size(),
                                        " deviations, expected one of each per channel"));
  if (!std::all_of(std_.begin(), std_.end(), [](double value) { return value > 0; }))
    throw InvalidArgument("Normalize: a deviation is not above 0");
}

at::Tensor Normalize::operator()(const at::Tensor& image, SampleRandom& /*random*/) const {
  check_image("Normalize", image);
  if (image.scalar_type() != at::kFloat)
    throw InvalidArgument(
        lockstep::str("Normalize: expected float32, got ", image.scalar_type(), "; ToTensor goes before it"));
  if (image.size(0) != static_cast<std::int64_t>(mean_.size()))
    throw InvalidArgument(lockstep::str("Normalize: the image has ", image.size(0),
                                        " channels, and it was made for ", mean_.size()));
  const at::Tensor source = image.contiguous();
  at::Tensor result = at::empty(image.sizes(), at::TensorOptions(at::kFloat));
  const std::int64_t pixels = image.size(1) * image.size(2);
  const auto* from = source.const_data_ptr<float>();
  auto* to = result.mutable_data_ptr<float>();
  for (std::size_t c = 0; c < mean_.size(); ++c, from += pixels) {
    const auto mean = static_cast<float>(mean_[c]);
    const auto std = static_cast<float>(std_[c]);
    to = std::transform(from, from + pixels, to, [=](float value) { return (value - mean) / std; });
  }
  return result;
}

Batch transformed_batch(std::span<const std::int64_t> indices, std::int64_t epoch, std::uint64_t seed,
                        const Transform& transform, const std::function<at::Tensor(std::int64_t)>& image,
                        const std::function<std::int64_t(std::int64_t)>& target) {
  Batch batch;
  batch.target = at::empty({static_cast<std::int64_t>(indices.size())}, at::TensorOptions(at::kLong));
  char* to = nullptr;
  at::Tensor first;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    SampleRandom random(seed, epoch, indices[i]);
    const at::Tensor item = transform(image(indices[i]), random).contiguous();
    if (i == 0) {
      first = item;
      std::vector<std::int64_t> sizes = item.sizes().vec();
      sizes.insert(sizes.begin(), static_cast<std::int64_t>(indices.size()));
      batch.data = empty_like_type(sizes, item);
      to = static_cast<char*>(batch.data.mutable_data_ptr());
    }
    if (item.sizes() != first.sizes() || item.scalar_type() != first.scalar_type())
      throw InvalidArgument(lockstep::str("transformed images of one batch differ: item ", indices[0], " is ",
                                          first.scalar_type(), " ", first.sizes(), ", item ", indices[i],
                                          " is ", item.scalar_type(), " ", item.sizes()));
    std::memcpy(to, item.const_data_ptr(), item.nbytes());
    to += item.nbytes();
    batch.target.mutable_data_ptr<std::int64_t>()[i] = target(indices[i]);
  }
  if (indices.empty()) batch.data = at::empty({0}, at::TensorOptions(at::kFloat));
  return batch;
}

}  // namespace lockstep::transforms
