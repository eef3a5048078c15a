#include "lockstep/formats/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/stat.h>

#include "lockstep/base/error.h"
#include "testing/gzip.h"
#include "testing/temp_folder.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::gzip;
using ::testing::HasSubstr;
using testing::TempFolder;

std::string big_endian(std::uint32_t value) {
  std::string bytes;
  for (const unsigned shift : {24U, 16U, 8U, 0U}) bytes += static_cast<char>(value >> shift & 0xffU);
  return bytes;
}

std::string idx_file(const std::vector<std::uint32_t>& dims, const std::string& content,
                     std::uint32_t type = 0x08) {
  std::string file = big_endian(type << 8U | static_cast<std::uint32_t>(dims.size()));
  for (const std::uint32_t size : dims) file += big_endian(size);
  return file + content;
}

// The message with which `content` is refused, plain and packed; both must name the file.
void expect_refused(const std::string& content, int dimensions, const std::string& defect) {
  const TempFolder folder;
  for (const bool packed : {false, true}) {
    const std::string path = folder.write("broken-idx", packed ? gzip(content) : content);
    try {
      read_idx(path, dimensions);
      ADD_FAILURE() << "accepted, expected: " << defect;
    } catch (const FormatError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr(path), HasSubstr(defect)));
    }
  }
}

TEST(Idx, ReadsPlainAndGzipAlike) {
  const TempFolder folder;
  const std::string file = idx_file({2, 1, 3}, "abcdef");
  for (const std::string& content : {file, gzip(file), gzip(file.substr(0, 10)) + gzip(file.substr(10))}) {
    const IdxArray array = read_idx(folder.write("images", content), 3);
    EXPECT_THAT(array.dims, ElementsAre(2, 1, 3));
    EXPECT_THAT(array.bytes, ElementsAre('a', 'b', 'c', 'd', 'e', 'f'));
  }
}

TEST(Idx, ReadsAnEmptySet) {
  const TempFolder folder;
  const IdxArray array = read_idx(folder.write("none", idx_file({0, 28, 28}, "")), 3);
  EXPECT_THAT(array.dims, ElementsAre(0, 28, 28));
  EXPECT_TRUE(array.bytes.empty());
}

TEST(Idx, RefusesAWrongMagicNumber) {
  expect_refused("%PDF-1.4 and more", 1, "wrong magic number 0x25504446, expected 0x00000801");
  expect_refused(std::string("\x01\0\x08\x01\0\0\0\0", 8), 1, "wrong magic number 0x01000801");
}

TEST(Idx, RefusesAnotherElementType) {
  expect_refused(idx_file({1}, "1234", 0x0d), 1,
                 "is for another element type, expected 0x00000801 (unsigned bytes)");
}

TEST(Idx, RefusesAnotherNumberOfDimensions) {
  expect_refused(idx_file({4}, "1234"), 3, "it has 1 dimension(s), expected 3 (magic number 0x00000803)");
  expect_refused(idx_file({4, 1, 1}, "1234"), 1, "it has 3 dimension(s), expected 1");
}

TEST(Idx, RefusesSizesThatOverflow) {
  const std::uint32_t most = 0xffffffff;
  expect_refused(idx_file({most, most, most}, "x"), 3,
                 "4294967295 x 4294967295 x 4294967295 bytes, more than");
  expect_refused(idx_file({0x80000000, 2, 1}, "x"), 3,
                 "2147483648 x 2 x 1 bytes, which a file of this size cannot hold");
  // 2^16 * 2^16 * 2^32 wraps to zero in 64 bits.
  expect_refused(idx_file({0x10000, 0x10000, 0x80000000, 2}, ""), 4, "more than");
}

TEST(Idx, RefusesImagesOfNoSize) { expect_refused(idx_file({5, 0, 28}, ""), 3, "dimension 1 has size 0"); }

TEST(Idx, RefusesTruncatedFiles) {
  const std::string whole = idx_file({2, 2, 2}, "abcdefgh");
  for (std::size_t size = 0; size < whole.size(); ++size)
    expect_refused(whole.substr(0, size), 3, "truncated");
}

TEST(Idx, RefusesTrailingBytes) {
  expect_refused(idx_file({3}, "abcd"), 1, "trailing bytes after the 3 that its header claims");
}

// As the command gzip reads it: with a warning at most. Zeros of any number, also more than are read at once.
TEST(Idx, ZerosBehindAGzipStreamArePadding) {
  const TempFolder folder;
  const std::string file = idx_file({2}, "ab");
  for (const std::size_t zeros : {1UL, 512UL, 100000UL}) {
    const std::string padding(zeros, '\0');
    EXPECT_EQ(read_idx(folder.write("padded", gzip(file) + padding), 1).dims[0], 2) << zeros;
    for (const std::string& behind : {std::string("x"), gzip(file)}) {
      EXPECT_THAT([&] { read_idx(folder.write("padded", gzip(file) + padding + behind), 1); },
                  ::testing::ThrowsMessage<FormatError>(HasSubstr("bytes after the end of the gzip stream")));
    }
  }
}

TEST(Idx, RefusesItemsThatNoMemoryHoldsAlsoWhereThereAreNone) {
  expect_refused(idx_file({0, 0xffffffff, 0xffffffff}, ""), 3, "more than the");
}

TEST(Idx, APipeIsRefusedAtOnce) {
  const TempFolder folder;
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THAT([&] { read_idx(folder / "pipe", 1); },
              ::testing::ThrowsMessage<SystemError>(HasSubstr("a named pipe")));
}

TEST(Idx, RefusesBrokenGzip) {
  const TempFolder folder;
  const std::string whole = gzip(idx_file({20}, "abcdefghijklmnopqrst"));
  const auto message = [&](const std::string& content) -> std::string {
    try {
      read_idx(folder.write("broken.gz", content), 1);
    } catch (const FormatError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(message(whole.substr(0, whole.size() - 1)), HasSubstr("the gzip stream is cut short"));
  EXPECT_THAT(message(whole.substr(0, 20)), HasSubstr("cut short"));
  EXPECT_THAT(message(whole + "x"), HasSubstr("bytes after the end of the gzip stream"));
  std::string damaged = whole;
  damaged[damaged.size() - 6] ^= 1;  // inside the checksum
  EXPECT_THAT(message(damaged), AllOf(HasSubstr("broken.gz"), HasSubstr("incorrect data check")));
}

TEST(Idx, TellsAMissingFileAndAFolderFromABrokenOne) {
  const TempFolder folder;
  EXPECT_THROW(read_idx(folder / "nothing", 1), SystemError);
  EXPECT_THROW(read_idx(folder.path(), 1), SystemError);
}

RC_GTEST_PROP(Idx, RoundTrips, ()) {
  const auto dims =
      *rc::gen::container<std::vector<std::uint32_t>>(*rc::gen::inRange(1, 5), rc::gen::inRange(1U, 9U));
  std::size_t size = 1;
  for (const std::uint32_t dim : dims) size *= dim;
  const auto content = *rc::gen::container<std::string>(size, rc::gen::arbitrary<char>());
  const TempFolder folder;
  const std::string file = idx_file(dims, content);
  const std::string path = folder.write("file", *rc::gen::arbitrary<bool>() ? gzip(file) : file);
  const IdxArray array = read_idx(path, static_cast<int>(dims.size()));
  RC_ASSERT(std::equal(dims.begin(), dims.end(), array.dims.begin(), array.dims.end()));
  RC_ASSERT(std::string(array.bytes.begin(), array.bytes.end()) == content);
}

// Whatever the bytes are, the answer is an array that fits the file or a FormatError.
RC_GTEST_PROP(Idx, NeverTrustsAHeader, (const std::vector<std::uint32_t>& dims, const std::string& content)) {
  const TempFolder folder;
  const std::string path = folder.write("file", idx_file(dims, content));
  try {
    const IdxArray array = read_idx(path, std::clamp<int>(static_cast<int>(dims.size()), 1, 8));
    RC_ASSERT(array.bytes.size() == content.size());
  } catch (const FormatError& error) {
    RC_ASSERT(std::string(error.what()).find(path) != std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep
