// ResNet-18, -34 and -50 with the names, shapes and initial values of torchvision's, so that each reads the
// other's files.
//
//   auto net = models::resnet18({.num_classes = 10, .stem = models::Stem::CIFAR});
//   DistributedDataParallel ddp(net);
//   at::Tensor logits = ddp->forward(images);       // float32 [n, 3, rows, columns] to [n, num_classes]
//
//   # Python, once: a state dict of torchvision as a file that load_state_dict(*net, "resnet18.safetensors")
//   # takes
//   weights = torchvision.models.resnet18(weights="DEFAULT").state_dict()
//   safetensors.torch.save_file(weights, "resnet18.safetensors")
//
// Source      He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition (2015), table 1 and figure 5.
//             As in torchvision the stride of a bottleneck is at its 3x3 convolution ("ResNet v1.5"). The
//             CIFAR stem, a 3x3 convolution of stride 1 without max-pool, is that of the paper's section 4.2.
//             With the other stem images of 32 x 32 shrink to 1 x 1.
// Weights     Initially as torchvision makes them: bit for bit the same after the same torch::manual_seed()
//             (Stem::IMAGENET).
// Fails       InvalidArgument: options out of range.
#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <array>

namespace lockstep::models {

enum class Stem {
  IMAGENET,  // 7x7 convolution of stride 2, max-pool of stride 2: for images of about 224 x 224
  CIFAR,     // 3x3 convolution of stride 1: for images of about 32 x 32
};

struct ResNetOptions {
  std::int64_t num_classes = 1000;
  Stem stem = Stem::IMAGENET;
  std::int64_t width = 64;  // channels of the stem and the first stage; each later stage has twice as many
  bool zero_init_residual =
      false;  // the last normalisation of each block starts as zero (torchvision's option)
};

enum class Block {
  BASIC,       // two 3x3 convolutions
  BOTTLENECK,  // 1x1, 3x3, and 1x1 to four times as many channels
};

// One residual block: relu(norm(conv(...)) + x), or + downsample(x) if the shape changes.
struct ResidualBlockImpl : torch::nn::Module {
  ResidualBlockImpl(Block block, std::int64_t in, std::int64_t planes, std::int64_t stride);
  at::Tensor forward(const at::Tensor& x);

  torch::nn::Conv2d conv1{nullptr};
  torch::nn::BatchNorm2d bn1{nullptr};
  torch::nn::Conv2d conv2{nullptr};
  torch::nn::BatchNorm2d bn2{nullptr};
  torch::nn::Conv2d conv3{nullptr};  // of a bottleneck
  torch::nn::BatchNorm2d bn3{nullptr};
  torch::nn::Sequential downsample{nullptr};  // if the shape changes
};
TORCH_MODULE(ResidualBlock);

struct ResNetImpl : torch::nn::Module {
  // `blocks` has the number of blocks in each of the four stages.
  ResNetImpl(Block block, const std::array<int, 4>& blocks, const ResNetOptions& options);
  at::Tensor forward(const at::Tensor& x);

  torch::nn::Conv2d conv1{nullptr};
  torch::nn::BatchNorm2d bn1{nullptr};
  torch::nn::Sequential layer1{nullptr};
  torch::nn::Sequential layer2{nullptr};
  torch::nn::Sequential layer3{nullptr};
  torch::nn::Sequential layer4{nullptr};
  torch::nn::Linear fc{nullptr};

 private:
  bool pools_;
};
TORCH_MODULE(ResNet);

ResNet resnet18(const ResNetOptions& options = {});  // 11,689,512 parameters with the default options
ResNet resnet34(const ResNetOptions& options = {});  // 21,797,672
ResNet resnet50(const ResNetOptions& options = {});  // 25,557,032

}  // namespace lockstep::models
