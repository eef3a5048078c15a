#include "lockstep/models/resnet.h"

#include <torch/nn/functional/pooling.h>
#include <torch/nn/init.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::models {
namespace {

namespace nn = torch::nn;

constexpr std::int64_t BOTTLENECK_EXPANSION = 4;

std::int64_t expansion(Block block) { return block == Block::BASIC ? 1 : BOTTLENECK_EXPANSION; }

nn::Conv2d convolution(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

nn::Sequential stage(Block block, int blocks, std::int64_t in, std::int64_t planes, std::int64_t stride) {
  nn::Sequential result;
  for (int i = 0; i < blocks; ++i)
    result->push_back(i == 0 ? ResidualBlock(block, in, planes, stride)
                             : ResidualBlock(block, planes * expansion(block), planes, 1));
  return result;
}

// Uses the order and the calls of torchvision, because each draws random numbers.
void initialise(ResNetImpl& net, bool zero_init_residual) {
  for (const auto& module : net.modules(/*include_self=*/false)) {
    if (auto* const conv = module->as<nn::Conv2d>())
      nn::init::kaiming_normal_(conv->weight, 0, torch::kFanOut, torch::kReLU);
  }
  if (!zero_init_residual) return;
  for (const auto& module : net.modules(/*include_self=*/false)) {
    if (auto* const block = module->as<ResidualBlock>())
      nn::init::zeros_((block->bn3.is_empty() ? block->bn2 : block->bn3)->weight);
  }
}

void check(const ResNetOptions& options) {
  if (options.num_classes < 1)
    throw InvalidArgument(str("ResNet: num_classes is ", options.num_classes, ", expected 1 or more"));
  if (options.width < 1)
    throw InvalidArgument(str("ResNet: width is ", options.width, ", expected 1 or more"));
}

}  // namespace

ResidualBlockImpl::ResidualBlockImpl(Block block, std::int64_t in, std::int64_t planes, std::int64_t stride) {
  const std::int64_t out = planes * expansion(block);
  const bool is_basic = block == Block::BASIC;
  conv1 = register_module("conv1", convolution(in, planes, is_basic ? 3 : 1, is_basic ? stride : 1));
  bn1 = register_module("bn1", nn::BatchNorm2d(planes));
  conv2 = register_module("conv2", convolution(planes, planes, 3, is_basic ? 1 : stride));
  bn2 = register_module("bn2", nn::BatchNorm2d(planes));
  if (!is_basic) {
    conv3 = register_module("conv3", convolution(planes, out, 1, 1));
    bn3 = register_module("bn3", nn::BatchNorm2d(out));
  }
  if (stride != 1 || in != out)
    downsample =
        register_module("downsample", nn::Sequential(convolution(in, out, 1, stride), nn::BatchNorm2d(out)));
}

at::Tensor ResidualBlockImpl::forward(const at::Tensor& x) {
  at::Tensor y = bn2(conv2(bn1(conv1(x)).relu_()));
  if (!conv3.is_empty()) y = bn3(conv3(y.relu_()));
  return y.add_(downsample.is_empty() ? x : downsample->forward(x)).relu_();
}

ResNetImpl::ResNetImpl(Block block, const std::array<int, 4>& blocks, const ResNetOptions& options)
    : pools_(options.stem == Stem::IMAGENET) {
  check(options);
  const std::int64_t width = options.width;
  conv1 = register_module("conv1", pools_ ? convolution(3, width, 7, 2) : convolution(3, width, 3, 1));
  bn1 = register_module("bn1", nn::BatchNorm2d(width));
  const std::int64_t e = expansion(block);
  layer1 = register_module("layer1", stage(block, blocks[0], width, width, 1));
  layer2 = register_module("layer2", stage(block, blocks[1], width * e, width * 2, 2));
  layer3 = register_module("layer3", stage(block, blocks[2], width * 2 * e, width * 4, 2));
  layer4 = register_module("layer4", stage(block, blocks[3], width * 4 * e, width * 8, 2));
  fc = register_module("fc", nn::Linear(width * 8 * e, options.num_classes));
  initialise(*this, options.zero_init_residual);
}

at::Tensor ResNetImpl::forward(const at::Tensor& x) {
  namespace F = nn::functional;
  at::Tensor y = bn1(conv1(x)).relu_();
  if (pools_) y = F::max_pool2d(y, F::MaxPool2dFuncOptions(3).stride(2).padding(1));
  y = layer4->forward(layer3->forward(layer2->forward(layer1->forward(y))));
  return fc(F::adaptive_avg_pool2d(y, F::AdaptiveAvgPool2dFuncOptions(1)).flatten(1));
}

ResNet resnet18(const ResNetOptions& options) {
  return ResNet(Block::BASIC, std::array{2, 2, 2, 2}, options);
}
ResNet resnet34(const ResNetOptions& options) {
  return ResNet(Block::BASIC, std::array{3, 4, 6, 3}, options);
}
ResNet resnet50(const ResNetOptions& options) {
  return ResNet(Block::BOTTLENECK, std::array{3, 4, 6, 3}, options);
}

}  // namespace lockstep::models
