// find_mnist: where MNIST, or data in its form, is on this machine; downloads it when it is nowhere.
//
//   const FoundMnist found = find_mnist({.directory = option_data, .checkout = "."});
//   MNIST train(found.directory, Split::TRAIN);
//
// Looks, in this order, at
//   1. `directory` (--data DIR), which must then hold the four files, itself or below it as torchvision and
//      Keras put them (MNIST/raw, fashion-mnist, ...: data/mnist.h);
//   2. $LOCKSTEP_DATA/mnist, and below $LOCKSTEP_DATA likewise;
//   3. CHECKOUT/data/mnist, and below CHECKOUT/data likewise;
//   4. the mirrors: downloads to CHECKOUT/data/mnist, checked by SHA-256;
//   5. the Fashion-MNIST of Debian's package dataset-fashion-mnist, unless `dataset` asks for "mnist".
// With dataset = "fashion-mnist": 1., $LOCKSTEP_DATA/fashion-mnist, CHECKOUT/data/fashion-mnist, the Debian
// package.
//
// Fails       InvalidArgument: `directory` lacks files or holds the other data set; an unknown `dataset`;
//             nothing was found, with the reason and what to do.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace lockstep {

struct FindMnistOptions {
  std::string directory = {};  // "": look in the usual places
  std::string dataset = {};    // "mnist", "fashion-mnist", "": MNIST if possible
  std::string checkout = ".";  // the folder with data/
  bool may_download = true;
  std::vector<std::string> mirrors = {"https://ossci-datasets.s3.amazonaws.com/mnist/",
                                      "https://storage.googleapis.com/cvdf-datasets/mnist/",
                                      "https://yann.lecun.com/exdb/mnist/"};
  std::string debian_fashion_mnist = "/usr/share/datasets/fashion-mnist";
  // One line for the user: that a download starts, that another data set is taken.
  std::function<void(const std::string&)> say = [](const std::string&) {};
};

struct FoundMnist {
  std::string directory;
  std::string dataset;  // "mnist", "fashion-mnist", or the name of the folder for data that is neither
};

FoundMnist find_mnist(const FindMnistOptions& options);

// Collective over the world: the first rank of the machine finds or downloads, then the others look; only it
// says anything.
FoundMnist find_mnist_on_all_ranks(const FindMnistOptions& options);

}  // namespace lockstep
