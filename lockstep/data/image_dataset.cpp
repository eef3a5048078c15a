#include "lockstep/data/image_dataset.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {

ImageDataset::ImageDataset(std::string name, at::Tensor images, at::Tensor targets,
                           const std::vector<Channel>& channels)
    : name_(std::move(name)),
      images_(std::move(images)),
      targets_(std::move(targets)),
      normalised_(channels.size()) {
  for (std::size_t c = 0; c < channels.size(); ++c)
    for (std::size_t i = 0; i < 256; ++i)
      normalised_[c][i] = (static_cast<float>(i) / 255.0F - channels[c].mean) / channels[c].std;
}

void ImageDataset::check_index(const char* function, std::int64_t index) const {
  if (index < 0 || index >= size())
    throw InvalidArgument(str(name_, "::", function, ": index ", index, ", expected 0 to ", size() - 1));
}

at::Tensor ImageDataset::image(std::int64_t index) const {
  check_index("image", index);
  return images_.select(0, index);
}

std::int64_t ImageDataset::target(std::int64_t index) const {
  check_index("target", index);
  return targets_.const_data_ptr<std::int64_t>()[index];
}

// Plain loops, no tensor operations, because loader threads must not start thread pools of their own.
Batch ImageDataset::get_batch(std::span<const std::int64_t> indices) const {
  const auto count = static_cast<std::int64_t>(indices.size());
  const std::int64_t pixels = images_.size(2) * images_.size(3);
  Batch batch{
      at::empty({count, images_.size(1), images_.size(2), images_.size(3)}, at::TensorOptions(at::kFloat)),
      at::empty({count}, at::TensorOptions(at::kLong))};
  auto* out = batch.data.mutable_data_ptr<float>();
  auto* target = batch.target.mutable_data_ptr<std::int64_t>();
  const auto* const images = images_.const_data_ptr<std::uint8_t>();
  const auto* const targets = targets_.const_data_ptr<std::int64_t>();
  for (const std::int64_t index : indices) {
    check_index("get_batch", index);
    const auto* image = images + index * images_.size(1) * pixels;
    for (const std::array<float, 256>& table : normalised_) {
      out = std::transform(image, image + pixels, out, [&](std::uint8_t pixel) { return table[pixel]; });
      image += pixels;
    }
    *target++ = targets[index];
  }
  return batch;
}

}  // namespace lockstep
