#include "lockstep/models/resnet.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <map>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/tensor/state_dict.h"
#include "testing/paths.h"
#include "testing/python.h"
#include "testing/temp_folder.h"

namespace lockstep::models {
namespace {

using testing::run_python;
using testing::TempFolder;

struct Kind {
  int depth;
  ResNetOptions options;
};

ResNet make(const Kind& kind) {
  return kind.depth == 18   ? resnet18(kind.options)
         : kind.depth == 34 ? resnet34(kind.options)
                            : resnet50(kind.options);
}

// The same in Python: ResNet(...) of testing/resnet.py.
std::string python_call(const Kind& kind) {
  return str("ResNet(", kind.depth, ", num_classes=", kind.options.num_classes,
             ", cifar=", kind.options.stem == Stem::CIFAR ? "True" : "False", ", width=", kind.options.width,
             ", zero_init_residual=", kind.options.zero_init_residual ? "True" : "False", ")");
}

std::string python_head() {
  return str("import sys; sys.path.insert(0, '", testing::source_folder(),
             "/testing')\nimport torch\nfrom resnet import ResNet\nfrom safetensors.torch import "
             "save_file\ntorch.set_num_threads(1)\n");
}

std::int64_t count_parameters(const ResNet& net) {
  std::int64_t count = 0;
  for (const at::Tensor& parameter : net->parameters()) count += parameter.numel();
  return count;
}

// The numbers that torchvision's documentation gives.
TEST(ResNet, HasTorchvisionsNumberOfParameters) {
  EXPECT_EQ(count_parameters(resnet18()), 11'689'512);
  EXPECT_EQ(count_parameters(resnet34()), 21'797'672);
  EXPECT_EQ(count_parameters(resnet50()), 25'557'032);
}

TEST(ResNet, HasTorchvisionsNames) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : state_dict(*resnet50({.width = 1}))) names.push_back(name);
  EXPECT_EQ(names.size(), 320U);
  for (const char* name :
       {"conv1.weight", "bn1.num_batches_tracked", "layer1.0.conv3.weight", "layer1.0.downsample.0.weight",
        "layer1.0.downsample.1.running_mean", "layer3.5.bn3.running_var", "layer4.2.conv2.weight", "fc.bias"})
    EXPECT_THAT(names, ::testing::Contains(name));
}

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {{18, {.num_classes = 10, .stem = Stem::CIFAR, .width = 16}},
                                        {18, {.num_classes = 7}},
                                        {34, {.num_classes = 10, .width = 8}},
                                        {34, {.stem = Stem::CIFAR, .width = 4}},
                                        {50, {.num_classes = 10, .stem = Stem::CIFAR, .width = 8}},
                                        {50, {.num_classes = 3, .width = 16}}};
  return all;
}

// Names in order, shapes and dtypes; the logits in training and in evaluation, and the statistics that
// training leaves.
TEST(ResNet, EqualsPythons) {
  const TempFolder folder;
  std::string script = python_head();
  script += "torch.set_default_dtype(torch.float64)\n";
  for (std::size_t i = 0; i < kinds().size(); ++i)
    script += str("torch.manual_seed(", i, "); net = ", python_call(kinds()[i]), R"(
for name, value in net.state_dict().items():
    if value.is_floating_point(): value.copy_(torch.rand_like(value) + 0.5 if "bn" in name or "downsample.1" in name else value)
    print(name, value.dtype, list(value.shape), sep=";")
print("end")
x = torch.randn(2, 3, 64, 64)
record = {"x": x, **{"state." + name: value.clone() for name, value in net.state_dict().items()}}
net.eval(); record["eval"] = net(x)
net.train(); record["train"] = net(x)
record["mean"] = net.layer4[-1].bn2.running_mean
save_file({name: value.detach().contiguous().clone() for name, value in record.items()}, sys.argv[1] + "/)",
                  i, ".safetensors\")\n");
  std::istringstream lines(run_python(script, {folder.path()}));
  for (std::size_t i = 0; i < kinds().size(); ++i) {
    SCOPED_TRACE(python_call(kinds()[i]));
    ResNet net = make(kinds()[i]);
    net->to(at::kDouble);
    NamedTensors record = load_tensors(folder / str(i, ".safetensors"));
    std::map<std::string, at::Tensor> file(record.begin(), record.end());
    std::string line;
    const torch::NoGradGuard no_grad;
    for (const auto& [name, value] : state_dict(*net)) {
      std::getline(lines, line);
      const bool is_count = name.ends_with("num_batches_tracked");
      const std::vector<std::int64_t> sizes = value.sizes().vec();
      std::string shape;
      for (const std::int64_t size : sizes) shape += str(shape.empty() ? "" : ", ", size);
      EXPECT_EQ(line, str(name, ";torch.", is_count ? "int64" : "float64", ";[", shape, "]"));
      value.copy_(file.at("state." + name));
    }
    std::getline(lines, line);
    EXPECT_EQ(line, "end");
    const auto expect_close = [](const at::Tensor& ours, const at::Tensor& pythons) {
      EXPECT_LE((ours - pythons).abs().max().item<double>(), 1e-12 * pythons.abs().max().item<double>());
    };
    net->eval();
    expect_close(net->forward(file.at("x")), file.at("eval"));
    net->train();
    expect_close(net->forward(file.at("x")), file.at("train"));
    for (const auto& [name, value] : state_dict(*net))
      if (name.starts_with("layer4") && name.ends_with("1.bn2.running_mean") && kinds()[i].depth == 18)
        expect_close(value, file.at("mean"));
  }
}

// Bit for bit, after the same seed: torchvision makes its layers in this order, and so does
// testing/resnet.py.
TEST(ResNet, TheSameSeedGivesTheWeightsOfPython) {
  const TempFolder folder;
  const std::vector<Kind> seeded = {{18, {.num_classes = 10}},
                                    {50, {.num_classes = 10, .width = 16, .zero_init_residual = true}}};
  std::string script = python_head();
  for (const Kind& kind : seeded)
    script += str("torch.manual_seed(5); save_file(", python_call(kind), ".state_dict(), sys.argv[1] + '/",
                  kind.depth, ".safetensors')\n");
  run_python(script, {folder.path()});
  for (const Kind& kind : seeded) {
    torch::manual_seed(5);
    const ResNet net = make(kind);
    NamedTensors record = load_tensors(folder / str(kind.depth, ".safetensors"));
    const std::map<std::string, at::Tensor> file(record.begin(), record.end());
    EXPECT_EQ(file.size(), state_dict(*net).size());
    for (const auto& [name, value] : state_dict(*net)) EXPECT_TRUE(at::equal(value, file.at(name))) << name;
  }
}

// The way of a user: a file of Python's into a model of ours.
TEST(ResNet, LoadsAStateDictOfPython) {
  const TempFolder folder;
  run_python(python_head() + "save_file(ResNet(34, width=4).state_dict(), sys.argv[1] + '/34.safetensors')\n",
             {folder.path()});
  ResNet net = resnet34({.width = 4});
  const LoadStateDictResult result = load_state_dict(*net, folder / "34.safetensors");
  EXPECT_TRUE(result.missing.empty() && result.unexpected.empty());
}

TEST(ResNet, TakesImagesOfOtherSizes) {
  const torch::NoGradGuard no_grad;
  ResNet net = resnet18({.num_classes = 10, .width = 2});
  net->eval();
  EXPECT_EQ(net->forward(at::zeros({1, 3, 33, 47})).sizes(), at::IntArrayRef({1, 10}));
  EXPECT_EQ(net->forward(at::zeros({0, 3, 32, 32})).sizes(), at::IntArrayRef({0, 10}));
}

TEST(ResNet, RefusesOptionsOutOfRange) {
  EXPECT_THROW(resnet18({.num_classes = 0}), InvalidArgument);
  EXPECT_THROW(resnet50({.width = 0}), InvalidArgument);
}

}  // namespace
}  // namespace lockstep::models
