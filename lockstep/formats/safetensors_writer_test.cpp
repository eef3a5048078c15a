#include "lockstep/formats/safetensors_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "lockstep/base/error.h"
#include "testing/temp_folder.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TempFolder;

std::span<const std::byte> as_span(std::string_view text) { return std::as_bytes(std::span(text)); }

std::vector<SafetensorsEntry> three_tensors() {
  return {{"b", "U8", {3}}, {"a", "I32", {2}}, {"none", "F64", {0, 2}}};
}

TEST(SafetensorsWriter, PiecesOfAnySizeGiveTheFileOfOnePiece) {
  const TempFolder folder;
  const std::string data = "aaaaAAAAbbb";
  write_safetensors(folder / "whole.safetensors", {{"b", "U8", {3}, as_span("bbb")},
                                                   {"a", "I32", {2}, as_span("aaaaAAAA")},
                                                   {"none", "F64", {0, 2}, {}}});
  for (std::size_t piece = 1; piece <= data.size(); ++piece) {
    SafetensorsWriter writer(folder / "x.safetensors", three_tensors());
    ASSERT_EQ(writer.tensors().size(), 3U);
    EXPECT_EQ(writer.tensors()[1].name, "a");
    EXPECT_EQ(writer.tensors()[2].begin, 8U);
    for (std::size_t at = 0; at < data.size(); at += piece)
      writer.write(as_span(data).subspan(at, std::min(piece, data.size() - at)));
    writer.commit();
    EXPECT_EQ(folder.read("x.safetensors"), folder.read("whole.safetensors"));
    EXPECT_EQ(std::filesystem::file_size(folder / "x.safetensors"), writer.file_size());
  }
}

TEST(SafetensorsWriter, TooFewOrTooManyBytesLeaveTheOldFile) {
  const TempFolder folder;
  const std::string path = folder.write("x.safetensors", "old");
  {
    SafetensorsWriter writer(path, three_tensors());
    EXPECT_THROW(writer.write(as_span("123456789012")), InvalidArgument);
    writer.write(as_span("1234567890"));
    try {
      writer.commit();
      ADD_FAILURE() << "committed";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr(path), HasSubstr("have 11 bytes, and only 10 came")));
    }
  }
  EXPECT_EQ(folder.read("x.safetensors"), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(SafetensorsWriter, RefusesBeforeAFileIsMade) {
  const TempFolder folder;
  const auto make = [&](std::vector<SafetensorsEntry> tensors) {
    const SafetensorsWriter writer(folder / "x.safetensors", std::move(tensors));
  };
  EXPECT_THROW(make({{"a", "U8", {1}}, {"a", "U8", {1}}}), InvalidArgument);
  EXPECT_THROW(make({{"__metadata__", "U8", {1}}}), InvalidArgument);
  EXPECT_THROW(make({{"\xff", "U8", {1}}}), InvalidArgument);
  EXPECT_THROW(make({{"a", "F4", {1}}}), InvalidArgument);
  EXPECT_THROW(make({{"a", "U8", {-1}}}), InvalidArgument);
  EXPECT_THROW(make({{"a", "U8", {1LL << 62, 4}}}), InvalidArgument);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace lockstep
