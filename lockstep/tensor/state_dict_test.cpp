#include "lockstep/tensor/state_dict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <csignal>
#include <filesystem>
#include <sstream>

#include "lockstep/base/error.h"
#include "testing/python.h"
#include "testing/temp_folder.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::run_python;
using testing::TempFolder;

struct InnerModule : torch::nn::Module {
  InnerModule() {
    norm = register_module("norm", torch::nn::BatchNorm1d(3));
    scale =
        register_parameter("scale", torch::randn({}));  // after the child here, before it in Python's order
    register_buffer("steps", torch::tensor({5, 6}));
    register_parameter("absent", torch::Tensor(), /*requires_grad=*/false);
  }
  torch::nn::BatchNorm1d norm{nullptr};
  torch::Tensor scale;
};

struct OuterModule : torch::nn::Module {
  OuterModule() {
    encoder = register_module("encoder", torch::nn::Linear(3, 4));
    inner = register_module("inner", std::make_shared<InnerModule>());
    tied = register_parameter("tied", encoder->weight);
  }
  torch::nn::Linear encoder{nullptr};
  std::shared_ptr<InnerModule> inner;
  torch::Tensor tied;
};

NamedTensors tensors_of_many_dtypes() {
  const auto fill = [](at::ScalarType type) { return torch::arange(-3, 3).reshape({2, 3}).to(type); };
  NamedTensors tensors;
  for (const auto type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort,
                          at::kChar, at::kByte, at::kBool, at::kComplexFloat})
    tensors.emplace_back(toString(type), fill(type));
  tensors.emplace_back("transposed", torch::randn({5, 4}).t());
  tensors.emplace_back("conjugate", torch::randn({2, 2}, torch::kComplexFloat).conj());
  tensors.emplace_back("scalar", torch::tensor(2.5));
  tensors.emplace_back("empty", torch::empty({0, 3}));
  tensors.emplace_back("no dots or ASCII: \xc3\xa9\"\n", torch::ones({1}));
  return tensors;
}

std::string hex_of(const at::Tensor& tensor) {
  const at::Tensor plain = tensor.detach().resolve_conj().contiguous();
  const auto* bytes = static_cast<const unsigned char*>(plain.const_data_ptr());
  std::ostringstream text;
  text << std::hex;
  for (std::size_t i = 0; i < plain.nbytes(); ++i)
    text << (bytes[i] < 16 ? "0" : "") << static_cast<int>(bytes[i]);
  return text.str();
}

std::string lines_of(const NamedTensors& tensors) {
  std::ostringstream text;
  for (const auto& [name, tensor] : tensors) {
    for (const unsigned char c : name) text << static_cast<int>(c) << '.';
    text << ' ' << torch::toString(tensor.scalar_type()) << ' ' << tensor.sizes() << ' ' << hex_of(tensor)
         << '\n';
  }
  return text.str();
}

// Prints a file as lines_of() does, with the names as torch::toString writes them.
constexpr const char* PRINT_FILE = R"(
import sys, torch, safetensors.torch
path = sys.argv[1]
state = safetensors.torch.load_file(path) if path.endswith("safetensors") else torch.load(path, weights_only=True)
assert type(state) is dict
names = {"float64": "Double", "float32": "Float", "float16": "Half", "bfloat16": "BFloat16", "int64": "Long", "int32": "Int",
         "int16": "Short", "int8": "Char", "uint8": "Byte", "bool": "Bool", "complex64": "ComplexFloat"}
for name, t in state.items():
    assert not t.requires_grad
    raw = t.resolve_conj().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes().hex()
    print("".join(f"{c}." for c in name.encode()), names[str(t.dtype)[6:]], str(list(t.shape)), raw)
)";

std::string sorted_lines(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  std::string joined;
  for (const std::string& line : lines) joined += line + '\n';
  return joined;
}

TEST(StateDict, PythonReadsBothFilesBitForBit) {
  const TempFolder folder;
  const NamedTensors tensors = tensors_of_many_dtypes();
  save_state_dict(tensors, folder / "model.pt");
  save_state_dict(tensors, folder / "model.safetensors");
  EXPECT_EQ(run_python(PRINT_FILE, {folder / "model.pt"}), lines_of(tensors))
      << "a .pt file keeps the order, too";
  EXPECT_EQ(sorted_lines(run_python(PRINT_FILE, {folder / "model.safetensors"})),
            sorted_lines(lines_of(tensors)));
}

TEST(StateDict, PythonLoadsItIntoTheSameModel) {
  const TempFolder folder;
  const OuterModule model;
  save_state_dict(model, folder / "model.pt");
  save_state_dict(model, folder / "model.safetensors");
  const std::string names = run_python(R"(
import sys, torch, safetensors.torch
class InnerModule(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(3)
        self.scale = torch.nn.Parameter(torch.randn(()))
        self.register_buffer("steps", torch.zeros(2, dtype=torch.long))
        self.register_parameter("absent", None)
class OuterModule(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.Linear(3, 4)
        self.inner = InnerModule()
        self.tied = self.encoder.weight
model = OuterModule()
state = torch.load(sys.argv[1] + "/model.pt", weights_only=True)
assert list(state) == list(model.state_dict()), (list(state), list(model.state_dict()))
assert state["tied"].data_ptr() == state["encoder.weight"].data_ptr()
model.load_state_dict(state)
print(*model.state_dict())
model.load_state_dict(safetensors.torch.load_file(sys.argv[1] + "/model.safetensors"))
assert all(torch.equal(a, b) for a, b in zip(state.values(), model.state_dict().values()))
)",
                                       {folder.path()});
  EXPECT_EQ(names,
            "tied encoder.weight encoder.bias inner.scale inner.steps inner.norm.weight inner.norm.bias "
            "inner.norm.running_mean inner.norm.running_var inner.norm.num_batches_tracked\n");
}

TEST(StateDict, ViewsStayViewsInPythonAndCarryNoMoreThanTheyNeed) {
  const TempFolder folder;
  const at::Tensor shared = torch::arange(10.0F);
  save_state_dict(NamedTensors{{"all", shared},
                               {"middle", shared.slice(0, 4, 8)},
                               {"lone", torch::ones({1000000}).slice(0, 0, 3)}},
                  folder / "views.pt");
  EXPECT_LT(std::filesystem::file_size(folder / "views.pt"), 10000U);
  EXPECT_EQ(run_python(R"(
import sys, torch
state = torch.load(sys.argv[1], weights_only=True, mmap=True)
state["middle"].zero_()
print(state["all"].tolist(), state["lone"].tolist())
)",
                       {folder / "views.pt"}),
            "[0.0, 1.0, 2.0, 3.0, 0.0, 0.0, 0.0, 0.0, 8.0, 9.0] [1.0, 1.0, 1.0]\n");
}

TEST(StateDict, OneStorageWithTwoDtypesBecomesTwo) {
  const TempFolder folder;
  const at::Tensor number = torch::ones({1});
  save_state_dict(NamedTensors{{"number", number}, {"bits", number.view(at::kInt)}}, folder / "x.pt");
  EXPECT_EQ(
      run_python("import sys, torch; print(torch.load(sys.argv[1], weights_only=True))", {folder / "x.pt"}),
      "{'number': tensor([1.]), 'bits': tensor([1065353216], dtype=torch.int32)}\n");
}

TEST(StateDict, LoadsWhatPythonWroteThroughItsDdpPrefix) {
  const TempFolder folder;
  OuterModule model;
  run_python(R"(
import sys, torch, safetensors.torch
state = {"encoder.weight": torch.full((4, 3), 2.0, dtype=torch.float64), "encoder.bias": torch.arange(4.0), "inner.scale": torch.tensor(7.0),
         "inner.steps": torch.tensor([8, 9]), "inner.norm.weight": torch.ones(3), "inner.norm.bias": torch.ones(3),
         "inner.norm.running_mean": torch.ones(3), "inner.norm.running_var": torch.ones(3),
         "inner.norm.num_batches_tracked": torch.tensor(4)}
safetensors.torch.save_file({"module." + name: t for name, t in state.items()}, sys.argv[1])
)",
             {folder / "x.safetensors"});
  const LoadStateDictResult result =
      load_state_dict(model, folder / "x.safetensors");  // "tied" is there as encoder.weight
  EXPECT_TRUE(result.missing.empty());
  EXPECT_TRUE(result.unexpected.empty());
  EXPECT_TRUE(torch::equal(model.tied, torch::full({4, 3}, 2.0F)));
  EXPECT_TRUE(torch::equal(model.encoder->bias, torch::arange(4.0F)));
  EXPECT_TRUE(torch::equal(model.inner->named_buffers()["steps"], torch::tensor({8, 9})));
  EXPECT_TRUE(model.tied.requires_grad());
}

TEST(StateDict, SafetensorsRoundTripKeepsEveryBit) {
  const TempFolder folder;
  NamedTensors saved = tensors_of_many_dtypes();
  for (const auto type : {at::kUInt16, at::kUInt32, at::kUInt64, at::kFloat8_e4m3fn, at::kFloat8_e5m2})
    saved.emplace_back(torch::toString(type), torch::arange(6).to(type));
  save_state_dict(saved, folder / "x.safetensors");
  EXPECT_EQ(sorted_lines(lines_of(load_tensors(folder / "x.safetensors"))), sorted_lines(lines_of(saved)));
}

TEST(StateDict, NamesAllThatDoesNotFitAndChangesNothing) {
  const TempFolder folder;
  save_state_dict(NamedTensors{{"a", torch::ones({2})}, {"b", torch::ones({3})}, {"d", torch::ones({1})}},
                  folder / "x.safetensors");
  const at::Tensor a = torch::zeros({2});
  const NamedTensors model = {{"a", a}, {"b", torch::zeros({2, 2})}, {"c", torch::zeros({1})}};
  try {
    load_state_dict(model, folder / "x.safetensors");
    ADD_FAILURE() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr(folder / "x.safetensors"), HasSubstr(R"(missing "c")"),
                                    HasSubstr(R"(unexpected "d")"),
                                    HasSubstr("b has shape [3] in the file and [2, 2] in the model")));
  }
  EXPECT_THROW(load_state_dict(model, folder / "x.safetensors", {.strict = false}), InvalidArgument)
      << "shapes always count";
  EXPECT_TRUE(torch::equal(a, torch::zeros({2})));

  const LoadStateDictResult result =
      load_state_dict({{"a", a}, {"c", torch::zeros({1})}}, folder / "x.safetensors", {.strict = false});
  EXPECT_THAT(result.missing, ElementsAre("c"));
  EXPECT_THAT(result.unexpected, ElementsAre("b", "d"));
  EXPECT_TRUE(torch::equal(a, torch::ones({2})));
}

TEST(StateDict, AFullDiskLeavesTheOldFiles) {
  const TempFolder folder;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  for (const std::string name : {"x.pt", "x.safetensors"}) {
    const std::string path = folder.write(name, "old");
    const rlimit small{.rlim_cur = 4096, .rlim_max = before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    EXPECT_THROW(save_state_dict(NamedTensors{{"a", torch::ones({10000})}}, path), SystemError);
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_EQ(folder.read(name), "old");
  }
  (void)std::signal(SIGXFSZ, handler);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 2) << "no temporary files";
}

TEST(StateDict, RefusesWhatAFormatCannotHold) {
  const TempFolder folder;
  const auto save = [&](const at::Tensor& tensor, const std::string& name) {
    save_state_dict(NamedTensors{{"a", tensor}}, folder / name);
  };
  EXPECT_THROW(save(torch::ones({1}), "model.bin"), InvalidArgument);
  EXPECT_THROW(save(torch::ones({1}, at::kComplexDouble), "x.safetensors"), InvalidArgument);
  EXPECT_THROW(save(torch::ones({2, 2}).to_sparse(), "x.pt"), InvalidArgument);
  EXPECT_THROW(save(at::Tensor(), "x.safetensors"), InvalidArgument);
  EXPECT_THROW(
      save_state_dict(NamedTensors{{"a", torch::ones({1})}, {"a", torch::ones({1})}}, folder / "x.pt"),
      InvalidArgument);
  EXPECT_THROW(load_tensors(folder / "x.bin"), InvalidArgument);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace lockstep
