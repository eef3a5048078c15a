#include "lockstep/data/mnist.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/data/data_file.h"
#include "lockstep/formats/idx.h"

namespace lockstep {
namespace {

std::string path_of(const std::string& directory, Split split, std::size_t file) {
  return existing_data_file("MNIST", directory, MNIST_FILES[split == Split::TRAIN ? file : file + 2]);
}

// Returns the folder with both files of the split. If none has them, returns `directory`, and the error for
// it names the missing files.
std::string folder_of(const std::string& directory, const std::array<const char*, 3>& below, Split split) {
  const std::size_t first = split == Split::TRAIN ? 0 : 2;
  const std::string found =
      data_folder(directory, {below.begin(), below.end()}, {MNIST_FILES[first], MNIST_FILES[first + 1]});
  return found.empty() ? directory : found;
}

at::Tensor read_images(const std::string& path) {
  const IdxArray array = read_idx(path, 3);
  if (array.bytes.empty()) throw FormatError(str("MNIST: \"", printable(path), "\" holds no images"));
  at::Tensor images =
      at::empty({array.dims[0], 1, array.dims[1], array.dims[2]}, at::TensorOptions(at::kByte));
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

}  // namespace

MNIST::MNIST(const std::string& directory, Split split)
    : MNIST(folder_of(directory, MNIST_FOLDERS, split), split, {.mean = MEAN, .std = STD}) {}

MNIST::MNIST(const std::string& directory, Split split, Channel channel)
    : MNIST(read_images(path_of(directory, split, 0)), directory, split, channel) {}

MNIST::MNIST(const at::Tensor& images, const std::string& directory, Split split, Channel channel)
    : ImageDataset("MNIST", images, read_targets(path_of(directory, split, 1), images.size(0)), {channel}) {}

FashionMNIST::FashionMNIST(const std::string& directory, Split split)
    : MNIST(folder_of(directory, FASHION_MNIST_FOLDERS, split), split, {.mean = MEAN, .std = STD}) {}

}  // namespace lockstep
