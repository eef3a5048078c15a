#include "lockstep/formats/cifar_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "testing/gzip.h"
#include "testing/temp_folder.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using testing::gzip;
using ::testing::HasSubstr;
using testing::TempFolder;

std::string record(const std::string& labels, char pixel) { return labels + std::string(3072, pixel); }

void expect_refused(const std::string& content, const std::vector<int>& classes, const std::string& defect) {
  const TempFolder folder;
  for (const bool packed : {false, true}) {
    const std::string path = folder.write("broken.bin", packed ? gzip(content) : content);
    try {
      read_cifar_records(path, classes);
      ADD_FAILURE() << "accepted, expected: " << defect;
    } catch (const FormatError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr(path), HasSubstr(defect)));
    }
  }
}

TEST(CifarRecords, ReadsPlainAndGzipAlike) {
  const TempFolder folder;
  std::string file = record("\x03", 'a') + record("\x09", 'b');
  file.back() = 'z';
  for (const std::string& content : {file, gzip(file)}) {
    const CifarRecords records = read_cifar_records(folder.write("batch.bin", content), {10});
    EXPECT_EQ(records.count, 2);
    EXPECT_THAT(records.labels, ElementsAre(3, 9));
    EXPECT_EQ(std::string(records.pixels.begin(), records.pixels.end()),
              file.substr(1, 3072) + file.substr(3074));
  }
}

TEST(CifarRecords, ReadsTwoLabels) {
  const TempFolder folder;
  const std::string file = record(std::string("\x13\x63", 2), 'a') + record(std::string("\0\0", 2), 'a');
  const CifarRecords records = read_cifar_records(folder.write("train.bin", file), {20, 100});
  EXPECT_THAT(records.labels, ElementsAre(19, 99, 0, 0));
  EXPECT_EQ(records.pixels.size(), 6144U);
  EXPECT_THAT(records.pixels, Each('a'));
}

TEST(CifarRecords, RefusesAnEmptyFile) { expect_refused("", {10}, "it holds no records"); }

TEST(CifarRecords, RefusesACutRecord) {
  expect_refused("\x01", {10}, "truncated: record 0 has 1 bytes, expected 3073");
  expect_refused(record("\x01", 'a') + record("\x01", 'a').substr(1), {10},
                 "truncated: record 1 has 3072 bytes, expected 3073");
}

TEST(CifarRecords, RefusesLabelsOutOfRange) {
  expect_refused(record("\x01", 'a') + record("\x0a", 'a'), {10},
                 "label 10 of record 1 is out of range, expected 0 to 9");
  expect_refused(record("\x14\x01", 'a'), {20, 100},
                 "label 20 of record 0 is out of range, expected 0 to 19");
  expect_refused(record("\x01\x64", 'a'), {20, 100},
                 "label 100 of record 0 is out of range, expected 0 to 99");
}

TEST(CifarRecords, RefusesMoreRecordsThanAreAllowed) {
  const TempFolder folder;
  const std::string path = folder.write("batch.bin", record("\x01", 'a') + record("\x02", 'a'));
  EXPECT_EQ(read_cifar_records(path, {10}, 2).count, 2);
  EXPECT_THROW(read_cifar_records(path, {10}, 1), FormatError);
}

TEST(CifarRecords, RefusesBrokenGzip) {
  const TempFolder folder;
  const std::string whole = gzip(record("\x01", 'a'));
  EXPECT_THROW(read_cifar_records(folder.write("cut.gz", whole.substr(0, whole.size() - 1)), {10}),
               FormatError);
}

TEST(CifarRecords, TellsAMissingFileFromABrokenOne) {
  const TempFolder folder;
  EXPECT_THROW(read_cifar_records(folder / "nothing", {10}), SystemError);
  EXPECT_THROW(read_cifar_records(folder.write("one", record("\x01", 'a')), {}), InvalidArgument);
  EXPECT_THROW(read_cifar_records(folder.write("one", record("\x01", 'a')), {257}), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
