// find_mnist: finds MNIST, or data in its form, on this machine. Downloads it if it is nowhere.
//
//   const FoundMnist found = find_mnist({.directory = option_data, .checkout = "."});
//   MNIST train(found.directory, Split::TRAIN);
//
// Looks, in this order, at
//   1. `directory` (--data DIR), which must then hold the four files. They may lie in the subfolders that
//      torchvision and Keras use (MNIST/raw, fashion-mnist, ...: data/mnist.h);
//   2. $LOCKSTEP_DATA/mnist, and $LOCKSTEP_DATA with these subfolders;
//   3. CHECKOUT/data/mnist, and CHECKOUT/data with these subfolders;
//   4. the mirrors: downloads to CHECKOUT/data/mnist, checked by SHA-256;
//   5. the Fashion-MNIST of Debian's package dataset-fashion-mnist, unless `dataset` asks for "mnist".
// With dataset = "fashion-mnist": 1., $LOCKSTEP_DATA/fashion-mnist, CHECKOUT/data/fashion-mnist, the Debian
// package.
//
// Fails       InvalidArgument: `directory` lacks files or holds the other data set; an unknown `dataset`;
//             nothing was found. The message has the reason and says what to do.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace lockstep {

struct FindMnistOptions {
  std::string directory = {};  // "" means the usual places
  std::string dataset = {};    // "mnist", "fashion-mnist", "": MNIST if possible
  std::string checkout = ".";  // the folder that has data/
  bool may_download = true;
  std::vector<std::string> mirrors = {"https://ossci-datasets.s3.amazonaws.com/mnist/",
                                      "https://storage.googleapis.com/cvdf-datasets/mnist/",
                                      "https://yann.lecun.com/exdb/mnist/"};
  std::string debian_fashion_mnist = "/usr/share/datasets/fashion-mnist";
  // Receives one line for the user: a download starts, or another data set is taken.
  std::function<void(const std::string&)> say = [](const std::string&) {};
};

struct FoundMnist {
  std::string directory;
  std::string dataset;  // "mnist", "fashion-mnist", or the name of the folder for data that is neither
};

FoundMnist find_mnist(const FindMnistOptions& options);

// Collective over the world. The first rank of the machine finds or downloads the data, then the others look
// for them. Only that rank calls `say`.
FoundMnist find_mnist_on_all_ranks(const FindMnistOptions& options);

}  // namespace lockstep
