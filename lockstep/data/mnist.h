// The data sets MNIST and Fashion-MNIST: grey images of 28 x 28 pixels in ten classes.
//
//   MNIST train("data/mnist", Split::TRAIN);
//   train.size();                                   // 60000
//   Batch batch = train.get_batch(indices);         // data: float32 [n, 1, 28, 28], target: int64 [n]
//   FashionMNIST clothes("/usr/share/datasets/fashion-mnist", Split::TRAIN);      // Debian's
//                                                                                 // dataset-fashion-mnist
//
// Files       DIRECTORY/train-images-idx3-ubyte (or train-images.idx3-ubyte) and train-labels-idx1-ubyte, or
//             t10k-..., plain or with .gz, with images of any size. They may lie in the subfolders that
//             torchvision and Keras use (MNIST_FOLDERS, FASHION_MNIST_FOLDERS). find_mnist() finds them. Both
//             sets have the same files, so MNIST reads Fashion-MNIST, too; only its normalisation differs.
// Fails       SystemError: a file is missing or cannot be read. FormatError, naming the file: not an idx file
//             of this kind, no images, another number of labels than of images, a label above 9.
// data/image_dataset.h has the other functions.
#pragma once

#include <array>
#include <string>

#include "lockstep/data/image_dataset.h"

namespace lockstep {

class MNIST : public ImageDataset {
 public:
  static constexpr int CLASSES = 10;
  static constexpr float MEAN = 0.1307F;  // of the pixels of the training images, divided by 255
  static constexpr float STD = 0.3081F;

  MNIST(const std::string& directory, Split split);

 protected:
  MNIST(const std::string& directory, Split split, Channel channel);

 private:
  MNIST(const at::Tensor& images, const std::string& directory, Split split, Channel channel);
};

class FashionMNIST : public MNIST {
 public:
  static constexpr float MEAN = 0.2860F;
  static constexpr float STD = 0.3530F;

  FashionMNIST(const std::string& directory, Split split);
};

// Subfolders of a folder for data sets: torchvision's, Keras' and ours.
inline constexpr std::array<const char*, 3> MNIST_FOLDERS = {"MNIST/raw", "raw", "mnist"};
inline constexpr std::array<const char*, 3> FASHION_MNIST_FOLDERS = {"FashionMNIST/raw", "raw",
                                                                     "fashion-mnist"};

// The four names: train images, train labels, test images, test labels.
inline constexpr std::array<const char*, 4> MNIST_FILES = {
    "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

}  // namespace lockstep
