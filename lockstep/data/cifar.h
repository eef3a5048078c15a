// The data sets CIFAR-10 and CIFAR-100: colour images of 32 x 32 pixels in ten or a hundred classes.
//
//   CIFAR10 train(find_cifar10(option_data), Split::TRAIN);
//   train.size();                                   // 50000
//   Batch batch = train.get_batch(indices);         // data: float32 [n, 3, 32, 32], target: int64 [n]
//   CIFAR100 hundred("data/cifar100", Split::TEST); // hundred.coarse_targets(): one of 20 superclasses
//
// Files       the binary version of https://www.cs.toronto.edu/~kriz/cifar.html, plain or with .gz:
//             data_batch_1.bin to data_batch_5.bin and test_batch.bin, or train.bin and test.bin.
//             `scripts/download cifar10` and `... cifar100` fetch and check them. They lie in DIRECTORY or
//             where the archive puts them, DIRECTORY/cifar-10-batches-bin and DIRECTORY/cifar-100-binary.
//             Shorter files are read, too: their images are the set.
// Fails       SystemError: a file is missing or cannot be read. FormatError, naming the file: no images, a
//             cut image, a label out of range. InvalidArgument: train_files out of range.
// What else a data set of images can do: data/image_dataset.h.
#pragma once

#include <array>
#include <string>

#include "lockstep/data/data_file.h"
#include "lockstep/data/image_dataset.h"

namespace lockstep {

struct CifarRecords;

struct CIFAR10Options {
  int train_files =
      5;  // for a quick run 1 to 4: only the first files of the training set, of 10000 images each
};

class CIFAR10 : public ImageDataset {
 public:
  static constexpr int CLASSES = 10;
  // Red, green, blue: those of the pixels of the training images, divided by 255.
  static constexpr std::array<float, 3> MEAN = {0.4914F, 0.4822F, 0.4465F};
  static constexpr std::array<float, 3> STD = {0.2470F, 0.2435F, 0.2616F};
  static constexpr std::array<const char*, 10> NAMES = {"airplane", "automobile", "bird",  "cat",  "deer",
                                                        "dog",      "frog",       "horse", "ship", "truck"};

  CIFAR10(const std::string& directory, Split split, const CIFAR10Options& options = {});

 private:
  explicit CIFAR10(const CifarRecords& records);
};

class CIFAR100 : public ImageDataset {
 public:
  static constexpr int CLASSES = 100;
  static constexpr int COARSE_CLASSES = 20;
  static constexpr std::array<float, 3> MEAN = {0.5071F, 0.4865F, 0.4409F};
  static constexpr std::array<float, 3> STD = {0.2673F, 0.2564F, 0.2762F};

  CIFAR100(const std::string& directory, Split split);

  const at::Tensor& coarse_targets() const { return coarse_targets_; }  // int64 [size]

 private:
  explicit CIFAR100(const CifarRecords& records);

  at::Tensor coarse_targets_;
};

// The folder with data_batch_1.bin and test_batch.bin, or train.bin and test.bin: `directory` (--data DIR) if
// it is not empty, else $LOCKSTEP_DATA/cifar10, $LOCKSTEP_DATA, CHECKOUT/data/cifar10 or CHECKOUT/data
// (cifar100), or the archive's folder in one of these. Throws InvalidArgument that says where it looked.
std::string find_cifar10(const std::string& directory = "", const std::string& checkout = ".");
std::string find_cifar100(const std::string& directory = "", const std::string& checkout = ".");

}  // namespace lockstep
