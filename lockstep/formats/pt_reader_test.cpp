#include "lockstep/formats/pt_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <sstream>

#include "lockstep/base/error.h"
#include "testing/python.h"
#include "testing/temp_folder.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::run_python;
using testing::TempFolder;

std::string hex_of(const PtReader& file, const PtTensor& tensor) {
  std::string bytes(size_of(tensor), ' ');
  file.read(tensor, std::as_writable_bytes(std::span(bytes)));
  std::string hex;
  for (const char byte : bytes) {
    hex += "0123456789abcdef"[static_cast<unsigned char>(byte) >> 4U];
    hex += "0123456789abcdef"[static_cast<unsigned char>(byte) & 15U];
  }
  return hex;
}

std::string lines_of(const PtReader& file) {
  std::ostringstream text;
  for (const PtTensor& tensor : file.tensors()) {
    text << tensor.name << " [";
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) text << (i > 0 ? ", " : "") << tensor.shape[i];
    text << "] " << hex_of(file, tensor) << '\n';
  }
  return text.str();
}

// Writes a state of a model, its optimiser and tensors of all kinds; prints them as lines_of() does.
constexpr const char* WRITE_STATE = R"(
import sys, torch
torch.manual_seed(1)
m = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
o = torch.optim.Adam(m.parameters())
m(torch.randn(4, 2)).sum().backward()
o.step()
w = torch.arange(6.0).reshape(2, 3)
kinds = {str(d)[6:]: torch.tensor([0, 1, 1]).to(d) for d in (torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn,
         torch.float8_e5m2, torch.float8_e8m0fnu, torch.complex32, torch.complex128, torch.bfloat16, torch.bool)}
z = torch.tensor([1 + 2j, 3 - 4j])
y = torch.tensor([5 + 6j, 7 - 8j])
state = {"m": m.state_dict(), "o": o.state_dict(), "parameter": torch.nn.Parameter(torch.ones(2)), "kinds": kinds, "conj": z.conj(),
         "imag": y.conj().imag, "w": w, "list": [w.t(), (w[:1].expand(3, 3), w[1:, 1:])], "zero": torch.tensor(3.0),
         "empty": torch.empty(0, 3), "none": None, "yes": True, "text": "x", "many": 2**64 - 1, "less": -2**35, "real": 2.5,
         "size": torch.Size([4]), "dtype": torch.float32, "device": torch.device("cpu")}
torch.save(state, sys.argv[1])
def show(name, value):
    if isinstance(value, dict):
        for key, item in value.items(): show(f"{name}.{key}" if name else str(key), item)
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value): show(f"{name}.{i}", item)
    elif isinstance(value, torch.Tensor):
        t = value.detach().resolve_conj().resolve_neg().contiguous().clone()
        print(name, list(t.shape), bytes(t.untyped_storage()).hex())
show("", state)
)";

PtScalar scalar_of(const PtReader& file, const std::string& name) {
  for (const auto& [known, value] : file.scalars())
    if (known == name) return value;
  ADD_FAILURE() << "no scalar " << name;
  return {};
}

TEST(PtReader, ReadsWhatPythonWrote) {
  const TempFolder folder;
  const std::string expected = run_python(WRITE_STATE, {folder / "x.pt"});
  const PtReader file(folder / "x.pt");
  EXPECT_EQ(lines_of(file), expected);
  EXPECT_EQ(scalar_of(file, "many"), PtScalar(UINT64_MAX));
  EXPECT_EQ(scalar_of(file, "less"), PtScalar(std::int64_t{-1} << 35));
  EXPECT_EQ(scalar_of(file, "real"), PtScalar(2.5));
  EXPECT_EQ(scalar_of(file, "yes"), PtScalar(true));
  EXPECT_EQ(scalar_of(file, "none"), PtScalar());
  EXPECT_EQ(scalar_of(file, "text"), PtScalar(std::string("x")));
  EXPECT_EQ(scalar_of(file, "size.0"), PtScalar(std::int64_t{4}));
  EXPECT_EQ(scalar_of(file, "dtype"), PtScalar(std::string("torch.float32")));
  EXPECT_EQ(scalar_of(file, "o.param_groups.0.lr"), PtScalar(1e-3));
}

void expect_pt_refused(const std::string& script, const std::string& defect) {
  const TempFolder folder;
  run_python("import sys, torch, os, zipfile\npath = sys.argv[1]\n" + script, {folder / "x.pt"});
  try {
    const PtReader file(folder / "x.pt");
    ADD_FAILURE() << "accepted, expected: " << defect;
  } catch (const FormatError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr(folder / "x.pt"), HasSubstr(defect)));
  }
}

TEST(PtReader, RefusesCodeByName) {
  expect_pt_refused(R"(
class Evil:
    def __reduce__(self): return os.system, ("true",)
torch.save({"a": Evil()}, path))",
                    "it wants to use posix.system");
  expect_pt_refused("torch.save(torch.nn.Linear(1, 1), path)",
                    "it wants to use torch.nn.modules.linear.Linear");
  expect_pt_refused("torch.save({'a': {1, 2}}, path)", "it wants to use __builtin__.set");
}

TEST(PtReader, RefusesOtherFormatsByName) {
  expect_pt_refused("torch.save({'a': torch.ones(2)}, path, _use_new_zipfile_serialization=False)",
                    "before PyTorch 1.6");
  expect_pt_refused("torch.jit.save(torch.jit.script(torch.nn.Linear(1, 1)), path)",
                    "it is a TorchScript archive");
  expect_pt_refused("open(path, 'w').write('hello, no zip')", "it is not a zip archive");
  expect_pt_refused("zipfile.ZipFile(path, 'w').writestr('a/b', 'x')", "it has no record data.pkl");
  expect_pt_refused(R"(
torch.save({'a': torch.ones(2)}, path)
old = zipfile.ZipFile(path)
items = [(i.filename, old.read(i)) for i in old.infolist()]
new = zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED)
for name, data in items: new.writestr(name, data)
new.close())",
                    "is compressed");
}

TEST(PtReader, RefusesWhatHoldsItself) {
  expect_pt_refused("a = []\na.append(a)\ntorch.save(a, path)", "nested too deeply, or hold themselves");
  expect_pt_refused("a = [1]\nfor i in range(40): a = [a, a]\ntorch.save(a, path)", "occur so often");
}

// Damage of a file anywhere: bytes changed, removed, repeated, or the end cut. It loads, or an error names
// it.
TEST(PtReader, ThreeThousandMutantsLoadOrAreRefusedByName) {
  const TempFolder folder;
  run_python(WRITE_STATE, {folder / "whole.pt"});
  const std::string whole = folder.read("whole.pt");
  const std::size_t pickle_end = whole.find("PK\7\10");
  std::mt19937 random(23);
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string mutant = whole;
    const std::size_t range = i % 3 == 0 ? mutant.size() : pickle_end;
    const std::size_t at = random() % range;
    switch (random() % 4) {
      case 0: mutant[at] = static_cast<char>(random()); break;
      case 1: mutant[at] = static_cast<char>(mutant[at] ^ (1 << random() % 8)); break;
      case 2:
        std::copy_n(mutant.begin(), 4, mutant.begin() + static_cast<std::ptrdiff_t>(std::min(at, range - 4)));
        break;
      default: mutant.resize(i % 3 == 0 ? at : mutant.size()); mutant[at % mutant.size()] = '(';
    }
    const std::string path = folder.write("mutant.pt", mutant);
    try {
      const PtReader file(path);
      for (const PtTensor& tensor : file.tensors()) {
        if (size_of(tensor) > 100 * whole.size()) continue;  // a stride of 0 repeats values
        EXPECT_EQ(hex_of(file, tensor).size(), 2 * size_of(tensor));
      }
    } catch (const FormatError& error) {
      ++refused;
      EXPECT_THAT(error.what(), HasSubstr(path));
    }
  }
  EXPECT_GT(refused, 500);
  EXPECT_LT(refused, 3000);
}

}  // namespace
}  // namespace lockstep
