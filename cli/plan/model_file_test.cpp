#include "cli/plan/model_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/formats/tensor_dtypes.h"
#include "testing/temp_folder.h"

namespace lockstep::cli {
namespace {

using lockstep::testing::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

struct PlannedTensor {
  std::string name, dtype;
  std::vector<std::int64_t> shape;
};

std::string write_model(const std::string& path, const std::vector<PlannedTensor>& tensors) {
  std::vector<std::vector<std::byte>> bytes;
  for (const PlannedTensor& tensor : tensors) {
    std::size_t size = find_dtype(tensor.dtype)->size;
    for (const std::int64_t length : tensor.shape) size *= static_cast<std::size_t>(length);
    bytes.emplace_back(size);
  }
  std::vector<SafetensorsSource> sources;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    sources.push_back({tensors[i].name, tensors[i].dtype, tensors[i].shape, bytes[i]});
  write_safetensors(path, sources);
  return path;
}

TEST(PlanModelFile, CountsFloatingPointNumbersByLayer) {
  const TempFolder folder;
  const ModelSize size =
      read_model_size(write_model(folder / "model.safetensors", {{"h.0.fc.weight", "F32", {30, 20}},
                                                                 {"h.0.fc.bias", "F32", {20}},
                                                                 {"h.1.fc.weight", "BF16", {10, 20}},
                                                                 {"wte", "F16", {610}},
                                                                 {"scale", "F64", {}},
                                                                 {"bn.num_batches_tracked", "I64", {}},
                                                                 {"h.0.mask", "BOOL", {1000}},
                                                                 {"empty", "F32", {0, 7}}}));
  EXPECT_EQ(size.parameters, 600U + 20 + 200 + 610 + 1);
  EXPECT_EQ(size.largest, 620U);
  EXPECT_EQ(size.largest_layer, "h.0.fc");
}

constexpr const char* INDEX =
    R"({"metadata":{"total_size":48,"total_parameters":123},"weight_map":{"a.w":"1.safetensors","a.b":"2.safetensors"}})";

TEST(PlanModelFile, TakesTheTensorsThatAnIndexNames) {
  const TempFolder folder;
  write_model(folder / "1.safetensors", {{"a.w", "F32", {10}}, {"not.in.the.index", "F32", {100}}});
  write_model(folder / "2.safetensors", {{"a.b", "F32", {2}}});
  const ModelSize size = read_model_size(folder.write("model.safetensors.index.json", INDEX));
  EXPECT_EQ(size.parameters, 12U);
  EXPECT_EQ(size.largest, 12U) << "one layer in two files";
  EXPECT_EQ(size.largest_layer, "a");
}

TEST(PlanModelFile, TakesTheTotalOfAnIndexAlone) {
  const TempFolder folder;
  const std::string path = folder.write("model.safetensors.index.json", INDEX);
  EXPECT_EQ(read_model_size(path).parameters, 123U);
  EXPECT_EQ(read_model_size(path).largest, 0U);
  write_model(folder / "1.safetensors", {{"a.w", "F32", {10}}});
  EXPECT_THAT([&] { read_model_size(path); }, ThrowsMessage<SystemError>(HasSubstr("2.safetensors")))
      << "a model of which a part is missing has no total";
}

TEST(PlanModelFile, RefusesByName) {
  const TempFolder folder;
  const auto refuses = [](const std::string& path, const std::string& name, const std::string& defect) {
    EXPECT_THAT([&] { read_model_size(path); },
                ThrowsMessage<Error>(AllOf(HasSubstr(name), HasSubstr(defect))));
  };
  refuses(folder / "none.safetensors", "none.safetensors", "No such file");
  refuses(folder.write("short.safetensors", "x"), "short.safetensors", "");
  refuses(write_model(folder / "whole.safetensors", {{"a", "I64", {3}}}), "whole.safetensors",
          "no tensor of floating-point numbers");
  refuses(folder.write("a.json", "{"), "a.json", "not JSON");
  refuses(folder.write("a.json", R"({"weight_map":{"a":"whole.safetensors","b":"whole.safetensors"}})"),
          "a.json", "tensor \"b\" is not in ");
  for (const char* metadata : {"{}", "[1]", R"({"total_parameters":-1})", R"({"total_parameters":"1"})"})
    refuses(folder.write("a.json", std::string(R"({"metadata":)") + metadata +
                                       R"(,"weight_map":{"a":"gone.safetensors"}})"),
            "gone.safetensors", "No such file");
  refuses(
      folder.write("a.json", R"({"metadata":{"total_parameters":0},"weight_map":{"a":"gone.safetensors"}})"),
      "a.json", "no tensor");
}

}  // namespace
}  // namespace lockstep::cli
