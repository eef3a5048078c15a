#include "lockstep/formats/pt_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/formats/pt_reader.h"
#include "lockstep/formats/tensor_dtypes.h"
#include "testing/python.h"
#include "testing/temp_folder.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::run_python;
using testing::TempFolder;

constexpr std::array DTYPES = {"F64",     "F32",         "F16",         "BF16",      "I64",     "I32",
                               "I16",     "I8",          "U64",         "U32",       "U16",     "U8",
                               "BOOL",    "C128",        "C64",         "C32",       "F8_E4M3", "F8_E5M2",
                               "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F4_E2M1_X2"};

std::span<const std::byte> text_bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(PtWriter, PythonReadsEveryDtypeBitForBitAndMapsIt) {
  const TempFolder folder;
  const std::string zeros_and_ones(64, '\1');
  std::vector<PtTensorSource> tensors;
  std::string expected;
  for (const char* const word : DTYPES) {
    const TensorDtype* const dtype = find_dtype(word);
    tensors.push_back({word, word, {2, 1}, text_bytes(zeros_and_ones).first(2 * dtype->size)});
    expected += std::string(word) + " torch." + std::string(dtype->torch_name) + " [2, 1] ";
    for (std::size_t i = 0; i < 2 * dtype->size; ++i) expected += "01";
    expected += '\n';
  }
  tensors.push_back({"empty", "F32", {0, 3}, {}});
  tensors.push_back({"scalar", "U8", {}, text_bytes("\1").first(1)});
  expected += "empty torch.float32 [0, 3] \nscalar torch.uint8 [] 01\n";
  write_pt(folder / "x.pt", tensors);
  for (const std::string mapped : {"0", "1"})
    EXPECT_EQ(run_python(R"(
import sys, torch
for name, t in torch.load(sys.argv[1], weights_only=True, mmap=sys.argv[2] == "1").items():
    assert t.data_ptr() % 64 == 0
    print(name, t.dtype, list(t.shape), bytes(t.untyped_storage()).hex())
)",
                         {folder / "x.pt", mapped}),
              expected);
}

TEST(PtWriter, PiecesOfAnySizeFillStoragesThatTensorsShare) {
  const TempFolder folder;
  const std::string data = "abcdefghXY";
  for (std::size_t piece = 1; piece <= data.size(); ++piece) {
    PtWriter writer(folder / "x.pt",
                    {{"all", "U8", {2, 4}, {}, 0, 0},
                     {"turned", "U8", {4, 2}, {1, 4}, 0, 0},
                     {"xy", "U16", {1}, {}, 2, 0}},
                    {8, 0, 2});
    for (std::size_t at = 0; at < data.size(); at += piece)
      writer.write(text_bytes(data).subspan(at, std::min(piece, data.size() - at)));
    writer.commit();
    const PtReader file(folder / "x.pt");
    ASSERT_EQ(file.tensors().size(), 3U);
    EXPECT_EQ(file.tensors()[0].storage, file.tensors()[1].storage);
    std::string turned(8, ' ');
    file.read(file.tensors()[1], std::as_writable_bytes(std::span(turned)));
    EXPECT_EQ(turned, "aebfcgdh");
  }
  EXPECT_EQ(
      run_python("import sys, torch; s = torch.load(sys.argv[1], weights_only=True); s['all'].zero_(); "
                 "print(s['turned'].sum().item(), s['xy'].tolist(), torch.load(sys.argv[1])['xy'].dtype)",
                 {folder / "x.pt"}),
      "0 [22872] torch.uint16\n");
}

TEST(PtWriter, WrongNumbersOfBytesLeaveTheOldFile) {
  const TempFolder folder;
  const std::string path = folder.write("x.pt", "old");
  {
    PtWriter writer(path, {{"a", "U8", {3}}});
    EXPECT_THROW(writer.write(text_bytes("1234")), InvalidArgument);
  }
  {
    PtWriter writer(path, {{"a", "U8", {3}}});
    writer.write(text_bytes("12"));
    EXPECT_THROW(writer.commit(), InvalidArgument);
  }
  EXPECT_EQ(folder.read("x.pt"), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(PtWriter, RefusesBeforeAFileIsMade) {
  const TempFolder folder;
  const auto make = [&](std::vector<PtEntry> tensors, std::vector<std::uint64_t> storages) {
    const PtWriter writer(folder / "x.pt", std::move(tensors), std::move(storages));
  };
  EXPECT_THROW(make({{"a", "U8", {1}}, {"a", "U8", {1}}}, {1}), InvalidArgument);
  EXPECT_THROW(make({{"\xff", "U8", {1}}}, {1}), InvalidArgument);
  EXPECT_THROW(make({{"a", "F5", {1}}}, {1}), InvalidArgument);
  EXPECT_THROW(make({{"a", "U8", {-1}}}, {1}), InvalidArgument);
  EXPECT_THROW(make({{"a", "U8", {2}}}, {1}), InvalidArgument);
  EXPECT_THROW(make({{"a", "U8", {1}, {}, 1}}, {1}), InvalidArgument);
  EXPECT_THROW(make({{"a", "U8", {4}}, {"b", "F32", {1}}}, {4}), InvalidArgument) << "two dtypes";
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace lockstep
