#include "lockstep/data/mnist.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/formats/idx.h"

namespace lockstep {
namespace {

std::string existing_file(const std::string& directory, const std::string& name) {
  std::string path = mnist_file(directory, name);
  if (path.empty())
    throw SystemError(
        str("MNIST: neither \"", name, "\" nor \"", name, ".gz\" is in \"", printable(directory), '"'),
        ENOENT);
  return path;
}

at::Tensor read_images(const std::string& path) {
  const IdxArray array = read_idx(path, 3);
  if (array.bytes.empty()) throw FormatError(str("MNIST: \"", printable(path), "\" holds no images"));
  at::Tensor images = at::empty(array.dims, at::TensorOptions(at::kByte));
  std::copy(array.bytes.begin(), array.bytes.end(), images.mutable_data_ptr<std::uint8_t>());
  return images;
}

at::Tensor read_targets(const std::string& path, std::int64_t images) {
  const IdxArray array = read_idx(path, 1);
  if (array.dims[0] != images)
    throw FormatError(
        str("MNIST: \"", printable(path), "\" holds ", array.dims[0], " labels for ", images, " images"));
  at::Tensor targets = at::empty(array.dims, at::TensorOptions(at::kLong));
  auto* const out = targets.mutable_data_ptr<std::int64_t>();
  for (std::size_t i = 0; i < array.bytes.size(); ++i) {
    if (array.bytes[i] >= MNIST::CLASSES)
      throw FormatError(str("MNIST: \"", printable(path), "\": label ", static_cast<int>(array.bytes[i]),
                            " of item ", i, " is out of range, expected 0 to ", MNIST::CLASSES - 1));
    out[i] = array.bytes[i];
  }
  return targets;
}

// The float that each byte becomes.
const std::array<float, 256>& normalised() {
  static const std::array<float, 256> table = [] {
    std::array<float, 256> values{};
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = (static_cast<float>(i) / 255.0F - MNIST::MEAN) / MNIST::STD;
    return values;
  }();
  return table;
}

}  // namespace

std::string mnist_file(const std::string& directory, const std::string& name) {
  for (const char* ending : {"", ".gz"}) {
    std::filesystem::path path = std::filesystem::path(directory) / (name + ending);
    std::error_code ignored;
    if (std::filesystem::is_regular_file(path, ignored)) return path.string();
  }
  return "";
}

MNIST::MNIST(const std::string& directory, Split split) {
  const std::size_t first = split == Split::TRAIN ? 0 : 2;
  images_ = read_images(existing_file(directory, MNIST_FILES[first]));
  targets_ = read_targets(existing_file(directory, MNIST_FILES[first + 1]), images_.size(0));
}

// Plain loops, no tensor operations: loader threads must not start thread pools of their own.
Batch MNIST::get_batch(std::span<const std::int64_t> indices) const {
  const auto count = static_cast<std::int64_t>(indices.size());
  const std::int64_t pixels = images_.size(1) * images_.size(2);
  Batch batch{at::empty({count, 1, images_.size(1), images_.size(2)}, at::TensorOptions(at::kFloat)),
              at::empty({count}, at::TensorOptions(at::kLong))};
  auto* out = batch.data.mutable_data_ptr<float>();
  auto* target = batch.target.mutable_data_ptr<std::int64_t>();
  const auto* const images = images_.const_data_ptr<std::uint8_t>();
  const auto* const targets = targets_.const_data_ptr<std::int64_t>();
  const std::array<float, 256>& table = normalised();
  for (const std::int64_t index : indices) {
    if (index < 0 || index >= size())
      throw InvalidArgument(str("MNIST::get_batch: index ", index, ", expected 0 to ", size() - 1));
    out = std::transform(images + index * pixels, images + (index + 1) * pixels, out,
                         [&](std::uint8_t pixel) { return table[pixel]; });
    *target++ = targets[index];
  }
  return batch;
}

}  // namespace lockstep
