// ImageDataset: images of one size with one class each, held in memory, such as MNIST and CIFAR-10.
//
//   const CIFAR10 train("data/cifar10", Split::TRAIN);
//   train.image(7);                                 // uint8 [3, 32, 32], no copy
//   train.target(7);                                // its class
//   Batch batch = train.get_batch(indices);         // data: float32 [n, 3, 32, 32], target: int64 [n]
//
// get_batch() turns a pixel x into (x / 255 - mean) / std, with the mean and std of its channel. For
// augmented images see data/transforms.h, which starts from image() and target().
//
// Fails       InvalidArgument: an index outside of the set.
// Memory      one byte per pixel and channel; copies share it.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep {

class ImageDataset {
 public:
  std::int64_t size() const { return images_.size(0); }
  at::Tensor image(std::int64_t index) const;  // uint8 [channels, rows, columns]
  std::int64_t target(std::int64_t index) const;
  const at::Tensor& images() const { return images_; }    // uint8 [size, channels, rows, columns]
  const at::Tensor& targets() const { return targets_; }  // int64 [size]

  Batch get_batch(std::span<const std::int64_t> indices) const;

 protected:
  struct Channel {
    float mean;  // of values from 0 to 1
    float std;
  };
  template <std::size_t N>
  static std::vector<Channel> channels(const std::array<float, N>& means, const std::array<float, N>& stds) {
    std::vector<Channel> all;
    for (std::size_t c = 0; c < N; ++c) all.push_back({means[c], stds[c]});
    return all;
  }
  // `images`: as images(); `targets`: as targets(), in the order of the images.
  ImageDataset(std::string name, at::Tensor images, at::Tensor targets, const std::vector<Channel>& channels);

 private:
  void check_index(const char* function, std::int64_t index) const;

  std::string name_;
  at::Tensor images_;
  at::Tensor targets_;
  std::vector<std::array<float, 256>> normalised_;  // per channel: the normalised float of each byte
};

}  // namespace lockstep
