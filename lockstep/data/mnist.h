// The data set MNIST, and any other in its files (Fashion-MNIST): grey images of ten classes.
//
//   MNIST train("data/mnist", Split::TRAIN);
//   train.size();                                   // 60000
//   Batch batch = train.get_batch(indices);         // data: float32 [n, 1, 28, 28], target: int64 [n]
//
// Files       DIRECTORY/train-images-idx3-ubyte and train-labels-idx1-ubyte, or t10k-..., plain or with .gz; see
//             find_mnist() for where they come from.
// Fails       SystemError: a file is missing or cannot be read. FormatError, naming the file: not an idx file of this kind, no
//             images, another number of labels than of images, a label above 9.
// Memory      one byte per pixel; copies of an MNIST share it.
#pragma once

#include <array>
#include <string>

#include "lockstep/data/dataset.h"

namespace lockstep {

enum class Split { TRAIN, TEST };

class MNIST {
 public:
  static constexpr int CLASSES = 10;
  static constexpr float MEAN = 0.1307F;  // of the pixels of MNIST's training images, divided by 255
  static constexpr float STD = 0.3081F;

  MNIST(const std::string& directory, Split split);

  std::int64_t size() const { return images_.size(0); }
  const at::Tensor& images() const { return images_; }    // uint8 [size, rows, columns]
  const at::Tensor& targets() const { return targets_; }  // int64 [size]

  // Pixels as (x / 255 - MEAN) / STD. Throws InvalidArgument for an index outside of the set.
  Batch get_batch(std::span<const std::int64_t> indices) const;

 private:
  at::Tensor images_;
  at::Tensor targets_;
};

// The path of one of a data set's files in `directory`, plain or .gz; empty when neither is there.
std::string mnist_file(const std::string& directory, const std::string& name);

// The four names: train images, train labels, test images, test labels.
inline constexpr std::array<const char*, 4> MNIST_FILES = {
    "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

}  // namespace lockstep
