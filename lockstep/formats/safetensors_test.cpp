#include "lockstep/formats/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <random>

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

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string file_of(const std::string& json, const std::string& data) {
  std::string file;
  for (unsigned i = 0; i < 8; ++i) file += static_cast<char>(json.size() >> (8 * i) & 0xffU);
  return file + json + data;
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return '"' + name + R"(":{"dtype":")" + dtype + R"(","shape":[)" + shape + R"(],"data_offsets":[)" +
         offsets + "]}";
}

void expect_refused(const std::string& content, const std::string& defect) {
  const TempFolder folder;
  const std::string path = folder.write("broken.safetensors", content);
  try {
    const SafetensorsFile file(path);
    ADD_FAILURE() << "accepted, expected: " << defect;
  } catch (const FormatError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr(path), HasSubstr(defect)));
  }
}

void expect_header_refused(const std::string& json, const std::string& defect) {
  expect_refused(file_of(json, "12345678"), defect);
}

TEST(Safetensors, ReadsWhatTheSpecificationShows) {
  const TempFolder folder;
  const std::string json = "{" + entry("b", "F16", "2,1", "4,8") + "," + entry("a", "I32", "", "0,4") + "," +
                           entry("none", "F32", "0,3", "8,8") + R"(,"__metadata__":{"made by":"hand"}}   )";
  SafetensorsFile file(folder.write("x.safetensors", file_of(json, "abcdefgh")));
  ASSERT_EQ(file.tensors().size(), 3U);
  EXPECT_EQ(file.tensors()[0].name, "a");
  EXPECT_THAT(file.tensors()[0].shape, ElementsAre());
  EXPECT_EQ(file.tensors()[1].name, "b");
  EXPECT_EQ(file.tensors()[1].dtype, "F16");
  EXPECT_THAT(file.tensors()[1].shape, ElementsAre(2, 1));
  EXPECT_THAT(file.tensors()[2].shape, ElementsAre(0, 3));
  EXPECT_EQ(file.metadata().at("made by"), "hand");
  std::string out(4, ' ');
  file.read(file.tensors()[1], std::as_writable_bytes(std::span(out)));
  EXPECT_EQ(out, "efgh");
}

TEST(Safetensors, RefusesFilesOfTheWrongLength) {
  expect_refused("", "truncated, it has no header");
  expect_refused("1234567", "truncated, it has no header");
  expect_refused(std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10),
                 "claims 18446744073709551615 bytes, more than");
  expect_refused(std::string("\x09\0\0\0\0\0\0\0{}", 10),
                 "truncated: its header claims 9 bytes, the file has 10");
  const std::string whole = file_of("{" + entry("a", "U8", "8", "0,8") + "}", "12345678");
  expect_refused(whole.substr(0, whole.size() - 1),
                 "truncated: its tensors need 8 bytes of data, it holds 7");
  expect_refused(whole + "x", "1 bytes after the last tensor belong to no tensor");
}

TEST(Safetensors, RefusesHeadersThatAreNoStrictJson) {
  expect_header_refused("", "does not start with '{'");
  expect_header_refused(" {}", "does not start with '{'");
  expect_header_refused("[]", "does not start with '{'");
  expect_header_refused("{", "is not JSON");
  expect_header_refused("{} {}", "is not JSON");
  expect_header_refused("{\"a\xff\":1}", "is not JSON");
  expect_header_refused(R"({"a":)" + std::string(1000000, '['), "is nested too deeply");
  expect_header_refused(R"({"a":)" + std::string(100000, '{'), "is not JSON");
}

TEST(Safetensors, RefusesNamesThatOccurTwice) {
  const std::string a = entry("a", "U8", "8", "0,8");
  expect_header_refused("{" + a + "," + a + "}", "the name \"a\" occurs twice");
  expect_header_refused(R"({"a":{"dtype":"U8","dtype":"I8","shape":[8],"data_offsets":[0,8]}})",
                        R"(the name "dtype" occurs twice)");
  expect_header_refused(R"({"__metadata__":{"k":"1","k":"2"},)" + a + "}", "the name \"k\" occurs twice");
}

TEST(Safetensors, RefusesBrokenEntries) {
  expect_header_refused(R"({"a":5})", "tensor \"a\": its entry is not an object");
  expect_header_refused(R"({"a":{"dtype":"U8","shape":[8]}})", "must hold dtype, shape and data_offsets");
  expect_header_refused(R"({"a":{"dtype":"U8","shape":[8],"offsets":[0,8]}})", "\"data_offsets\" is missing");
  expect_header_refused(R"({"a":{"dtype":8,"shape":[8],"data_offsets":[0,8]}})",
                        "\"dtype\" is missing or no text");
  expect_header_refused("{" + entry("a", "F7", "8", "0,8") + "}", "tensor \"a\": unknown dtype \"F7\"");
  expect_header_refused("{" + entry("a", "U8", "-8", "0,8") + "}", "shape must hold whole numbers");
  expect_header_refused("{" + entry("a", "U8", "8.0", "0,8") + "}", "shape must hold whole numbers");
  expect_header_refused("{" + entry("a", "U8", "18446744073709551615", "0,8") + "}", "which overflows");
  expect_header_refused("{" + entry("a", "U8", "8", "0,4,8") + "}", "data_offsets must hold two numbers");
  expect_header_refused(R"({"__metadata__":{"k":1}})", "__metadata__ \"k\" is not text");
  expect_header_refused(R"({"__metadata__":[]})", "__metadata__ is not an object");
}

TEST(Safetensors, RefusesShapesThatOverflowOrDoNotFit) {
  expect_header_refused("{" + entry("a", "F32", "4294967296,4294967296", "0,8") + "}",
                        "shape [4294967296, 4294967296] overflows");
  // 2^62 * 4 wraps to zero in 64 bits.
  expect_header_refused("{" + entry("a", "F32", "4611686018427387904", "0,0") + "}", "overflows");
  // Nothing to hold, and yet libtorch multiplies the other sizes.
  for (const char* shape : {"0,4611686018427387904,4611686018427387904", "4611686018427387904,0,8",
                            "4611686018427387904,4611686018427387904,0", "0,4611686018427387904"})
    expect_header_refused("{" + entry("a", "F32", shape, "0,0") + "}", "overflows");
  expect_header_refused("{" + entry("a", "F32", "3", "0,8") + "}",
                        "F32[3] needs 12 bytes, its data_offsets span 8");
  expect_header_refused("{" + entry("a", "U8", "8", "8,0") + "}", "it ends at byte 0, before it begins at 8");
}

TEST(Safetensors, RefusesHolesAndOverlaps) {
  expect_header_refused("{" + entry("a", "U8", "7", "1,8") + "}",
                        "bytes 0 to 1 of its data belong to no tensor");
  expect_header_refused("{" + entry("a", "U8", "3", "0,3") + "," + entry("b", "U8", "4", "4,8") + "}",
                        "bytes 3 to 4 of its data");
  expect_header_refused("{" + entry("a", "U8", "5", "0,5") + "," + entry("b", "U8", "4", "4,8") + "}",
                        "tensor \"b\" overlaps the one before it at byte 4");
  expect_header_refused("{}", "8 bytes after the last tensor belong to no tensor");
}

TEST(Safetensors, RefusesToWriteWhatNobodyCouldRead) {
  const TempFolder folder;
  const auto write = [&](std::vector<SafetensorsSource> tensors) {
    write_safetensors(folder / "x", std::move(tensors));
  };
  EXPECT_THROW(write({{"a", "U8", {1}, bytes("x")}, {"a", "I8", {1}, bytes("x")}}), InvalidArgument);
  EXPECT_THROW(write({{"a", "U8", {2}, bytes("x")}}), InvalidArgument);
  EXPECT_THROW(write({{"a", "U8", {-1}, bytes("x")}}), InvalidArgument);
  EXPECT_THROW(write({{"a", "F7", {1}, bytes("x")}}), InvalidArgument);
  EXPECT_THROW(write({{"a", "U8", {0, 1L << 62, 1L << 62}, bytes("")}}), InvalidArgument);
  EXPECT_THROW(write({{"__metadata__", "U8", {1}, bytes("x")}}), InvalidArgument);
  EXPECT_THROW(write({{"a\xff", "U8", {1}, bytes("x")}}), InvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(folder / "x"));
}

// With a parser whose time grows with the square of the number of tensors this would take more than a minute.
TEST(Safetensors, ReadsFortyThousandTensors) {
  const TempFolder folder;
  constexpr std::size_t TENSORS = 40000;
  std::string json = "{";
  for (std::size_t i = 0; i < TENSORS; ++i)
    json += (i > 0 ? "," : "") +
            entry("layers." + std::to_string(i), "U8", "1", std::to_string(i) + "," + std::to_string(i + 1));
  const SafetensorsFile file(folder.write("large", file_of(json + "}", std::string(TENSORS, 'x'))));
  ASSERT_EQ(file.tensors().size(), TENSORS);
  for (std::size_t i = 0; i < TENSORS; ++i) ASSERT_EQ(file.tensors()[i].name, "layers." + std::to_string(i));
}

TEST(Safetensors, WhatIsNoFileIsRefusedByNameAtOnce) {
  const TempFolder folder;
  ASSERT_EQ(mkfifo((folder / "m.safetensors").c_str(), 0600), 0);
  const auto refused = [](const std::string& path, const char* kind) {
    EXPECT_THAT([&] { const SafetensorsFile file(path); },
                ::testing::ThrowsMessage<SystemError>(AllOf(HasSubstr(path), HasSubstr(kind))));
  };
  refused(folder / "m.safetensors", "a named pipe");
  refused(folder.path(), "a folder");
  refused("/dev/zero", "a device");
}

TEST(Safetensors, AlignsEveryTensorToItsElementSize) {
  const TempFolder folder;
  write_safetensors(
      folder / "x",
      {{"a", "U8", {3}, bytes("123")}, {"b", "F64", {1}, bytes("12345678")}, {"c", "F16", {1}, bytes("12")}});
  const SafetensorsFile file(folder / "x");
  for (const SafetensorsTensor& tensor : file.tensors())
    EXPECT_EQ(tensor.begin % safetensors_dtype_size(tensor.dtype), 0U);
  EXPECT_EQ((folder.read("x").size() - 13) % 8, 0U);  // 13 bytes of data: the header ends on a multiple of 8
}

TEST(Safetensors, NoticesAFileThatShrinksWhileItIsOpen) {
  const TempFolder folder;
  write_safetensors(folder / "x", {{"a", "U8", {100000}, bytes(std::string(100000, 'x'))}});
  SafetensorsFile file(folder / "x");
  std::filesystem::resize_file(folder / "x", 1000);
  std::vector<std::byte> out(100000);
  EXPECT_THROW(file.read(file.tensors()[0], out), FormatError);
}

RC_GTEST_PROP(Safetensors, RoundTrips, (const std::map<std::string, std::vector<std::uint16_t>>& tensors)) {
  const TempFolder folder;
  std::vector<SafetensorsSource> sources;
  std::map<std::string, std::span<const std::byte>> expected;
  const auto is_ascii = [](const std::string& name) {
    return std::all_of(name.begin(), name.end(), [](char c) { return c >= 0; });
  };
  for (const auto& [name, values] : tensors) {
    if (!is_ascii(name)) continue;
    expected[name] = std::as_bytes(std::span(values));
    sources.push_back({name, "BF16", {static_cast<std::int64_t>(values.size()), 1}, expected[name]});
  }
  write_safetensors(folder / "x", sources, {{"key", "value"}});
  SafetensorsFile file(folder / "x");
  RC_ASSERT(file.tensors().size() == expected.size());
  for (const SafetensorsTensor& tensor : file.tensors()) {
    std::vector<std::byte> out(tensor.size());
    file.read(tensor, out);
    RC_ASSERT(
        std::equal(out.begin(), out.end(), expected.at(tensor.name).begin(), expected.at(tensor.name).end()));
  }
}

// A valid file with a few bytes changed, cut out, doubled or put in.
std::string mutate(std::string file, std::mt19937& random) {
  const auto below = [&](std::size_t limit) {
    return std::uniform_int_distribution<std::size_t>(0, limit - 1)(random);
  };
  constexpr std::string_view ALPHABET = "0123456789,:[]{}\"aAbF -.e\0\x01\xff";
  for (std::size_t edits = 1 + below(3); edits > 0; --edits) {
    const std::size_t at = below(file.size());
    switch (below(4)) {
      case 0: file[at] = ALPHABET[below(ALPHABET.size())]; break;
      case 1: file.erase(at, 1); break;
      case 2: file.insert(at, 1, ALPHABET[below(ALPHABET.size())]); break;
      default: file.insert(at, file.substr(at, 1 + below(20))); break;
    }
  }
  return file;
}

TEST(Safetensors, AcceptsNothingThatPythonRefuses) {
  const TempFolder folder;
  write_safetensors(folder / "valid",
                    {{"a", "F32", {2, 1}, bytes("12345678")}, {"b", "U8", {3}, bytes("123")}});
  const std::string valid = folder.read("valid");
  std::mt19937 random(7);
  constexpr int FILES = 2000;
  std::string ours;
  for (int i = 0; i < FILES; ++i) {
    std::string content = i == 0 ? valid : mutate(valid, random);
    if (i % 2 == 1)
      content[0] = static_cast<char>(
          content.size() > 8 ? valid[0] + static_cast<int>(content.size() - valid.size()) : 0);
    const std::string path = folder.write("file" + std::to_string(i), content);
    try {
      const SafetensorsFile file(path);
      ours += 'y';
    } catch (const FormatError&) {
      ours += 'n';
    }
  }
  const std::string theirs = run_python(R"(
import sys, safetensors
for i in range(int(sys.argv[2])):
    try:
        with safetensors.safe_open(f"{sys.argv[1]}/file{i}", "numpy") as file:
            file.keys()
        print("y", end="")
    except safetensors.SafetensorError:
        print("n", end="")
)",
                                        {folder.path(), std::to_string(FILES)});
  ASSERT_EQ(theirs.size(), ours.size());
  EXPECT_EQ(ours[0], 'y');
  EXPECT_GT(std::count(theirs.begin(), theirs.end(), 'y'), 20);
  for (std::size_t i = 0; i < ours.size(); ++i)
    EXPECT_TRUE(theirs[i] == 'y' || ours[i] == 'n')
        << "Python refuses: " << ::testing::PrintToString(folder.read("file" + std::to_string(i)));
}

}  // namespace
}  // namespace lockstep
