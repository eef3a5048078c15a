#include "lockstep/data/cifar.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <optional>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "testing/gzip.h"
#include "testing/temp_folder.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using testing::gzip;
using ::testing::HasSubstr;
using testing::TempFolder;

// `count` records; pixel i of record r is (7 * r + i) modulo 251.
std::string records(int count, const std::string& labels) {
  std::string file;
  for (int r = 0; r < count; ++r) {
    file += labels;
    for (int i = 0; i < 3072; ++i) file += static_cast<char>((7 * r + i) % 251);
  }
  return file;
}

at::Tensor image(int r) {
  return at::arange(3072).add(7 * r).remainder(251).reshape({3, 32, 32}).to(at::kByte);
}

TEST(CIFAR10, ReadsTheFilesOfEitherSplitInOrder) {
  const TempFolder folder;
  for (int i = 1; i <= 5; ++i)
    folder.write("data_batch_" + std::to_string(i) + ".bin" + (i == 3 ? ".gz" : ""),
                 i == 3 ? gzip(records(2, "\x03")) : records(i, std::string(1, static_cast<char>(i))));
  folder.write("test_batch.bin", records(3, "\x09"));
  const CIFAR10 train(folder.path(), Split::TRAIN);
  EXPECT_TRUE(at::equal(train.targets(), at::tensor({1, 2, 2, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 5}, at::kLong)));
  EXPECT_TRUE(at::equal(train.image(8), image(3))) << "the last of the fourth file";
  EXPECT_EQ(train.images().sizes(), at::IntArrayRef({14, 3, 32, 32}));
  const CIFAR10 test(folder.path(), Split::TEST);
  EXPECT_EQ(test.size(), 3);
  EXPECT_EQ(test.target(2), 9);
  EXPECT_EQ(CIFAR10(folder.path(), Split::TRAIN, {.train_files = 2}).size(), 3);
}

TEST(CIFAR10, BatchesEqualWhatLibtorchComputes) {
  const TempFolder folder;
  folder.write("test_batch.bin", records(9, "\x04"));
  const CIFAR10 test(folder.path(), Split::TEST);
  const Batch batch = test.get_batch(std::vector<std::int64_t>{8, 0, 8});
  const at::Tensor mean = at::tensor({0.4914F, 0.4822F, 0.4465F}).view({3, 1, 1});
  const at::Tensor std = at::tensor({0.2470F, 0.2435F, 0.2616F}).view({3, 1, 1});
  const at::Tensor pixels = at::stack({image(8), image(0), image(8)}).to(at::kFloat);
  EXPECT_TRUE(at::equal(batch.data, pixels.div(255).sub(mean).div(std)));
  EXPECT_TRUE(at::equal(batch.target, at::full({3}, 4, at::kLong)));
  for (const std::int64_t bad : {-1, 9}) EXPECT_THROW(test.get_batch(std::vector{bad}), InvalidArgument);
}

TEST(CIFAR10, NamesTheFileThatIsMissing) {
  const TempFolder folder;
  folder.write("data_batch_1.bin", records(1, "\x01"));
  try {
    const CIFAR10 data(folder.path(), Split::TRAIN);
    ADD_FAILURE() << "accepted";
  } catch (const SystemError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("\"data_batch_2.bin.gz\""), HasSubstr(folder.path())));
  }
  for (const int files : {0, 6})
    EXPECT_THROW(CIFAR10(folder.path(), Split::TRAIN, {.train_files = files}), InvalidArgument);
}

TEST(CIFAR10, RefusesCIFAR100) {
  const TempFolder folder;
  folder.write("test_batch.bin", records(20, "\x07\x0b"));
  EXPECT_THROW(CIFAR10(folder.path(), Split::TEST), FormatError);
}

TEST(CIFAR100, HasFineAndCoarseTargets) {
  const TempFolder folder;
  folder.write("train.bin.gz", gzip(records(2, "\x13\x63") + records(1, std::string("\x00\x05", 2))));
  folder.write("test.bin", records(1, "\x01\x02"));
  const CIFAR100 train(folder.path(), Split::TRAIN);
  EXPECT_TRUE(at::equal(train.targets(), at::tensor({99, 99, 5}, at::kLong)));
  EXPECT_TRUE(at::equal(train.coarse_targets(), at::tensor({19, 19, 0}, at::kLong)));
  EXPECT_TRUE(at::equal(train.image(1), image(1)));
  EXPECT_EQ(CIFAR100(folder.path(), Split::TEST).target(0), 2);
}

// LOCKSTEP_DATA as the test wants it, and afterwards as it was.
class DataVariable {
 public:
  explicit DataVariable(const std::string& value) : before_(env("LOCKSTEP_DATA")) {
    ::setenv("LOCKSTEP_DATA", value.c_str(), 1);
  }
  ~DataVariable() {
    if (before_)
      ::setenv("LOCKSTEP_DATA", before_->c_str(), 1);
    else
      ::unsetenv("LOCKSTEP_DATA");
  }
  DataVariable(const DataVariable&) = delete;
  DataVariable& operator=(const DataVariable&) = delete;

 private:
  std::optional<std::string> before_;
};

TEST(FindCifar, LooksInThePlacesInOrder) {
  const TempFolder folder;
  const DataVariable variable(folder / "data-sets");
  const auto put = [&](const std::string& place, const std::vector<std::string>& files) {
    std::filesystem::create_directories(folder / place);
    for (const std::string& file : files) folder.write(place + "/" + file, "not looked at here");
    return folder / place;
  };
  const std::string checkout = folder / "checkout";
  try {
    find_cifar10("", checkout);
    ADD_FAILURE() << "found";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr(folder / "data-sets/cifar10\" lacks data_batch_1.bin, test_batch.bin"),
                      HasSubstr(folder / "checkout/data/cifar10"), HasSubstr("scripts/download cifar10")));
  }
  put("data-sets/cifar10", {"data_batch_1.bin"});
  EXPECT_EQ(find_cifar10(put("given", {"data_batch_1.bin.gz", "test_batch.bin"}), checkout),
            folder / "given");
  EXPECT_THROW(find_cifar10(folder / "data-sets/cifar10", checkout), InvalidArgument)
      << "given, but incomplete";
  const std::string here = put("checkout/data/cifar10", {"data_batch_1.bin", "test_batch.bin"});
  EXPECT_EQ(find_cifar10("", checkout), here);
  put("data-sets/cifar10", {"test_batch.bin.gz"});
  EXPECT_EQ(find_cifar10("", checkout), folder / "data-sets/cifar10");
  const std::string hundred = put("data-sets/cifar100", {"train.bin", "test.bin"});
  EXPECT_EQ(find_cifar100("", checkout), hundred);
}

TEST(FindCifar, LooksWhereTheArchivesUnpack) {
  const TempFolder folder;
  const DataVariable variable(folder.path());
  for (const char* place : {"cifar-10-batches-bin", "cifar-100-binary", "given/cifar-10-batches-bin"})
    std::filesystem::create_directories(folder / place);
  const std::string record(1 + 3072, '\1');
  for (const char* name :
       {"cifar-10-batches-bin/data_batch_1.bin", "cifar-10-batches-bin/test_batch.bin",
        "given/cifar-10-batches-bin/data_batch_1.bin", "given/cifar-10-batches-bin/test_batch.bin"})
    folder.write(name, record);
  for (const char* name : {"cifar-100-binary/train.bin", "cifar-100-binary/test.bin"})
    folder.write(name, "\1" + record);
  EXPECT_EQ(find_cifar10("", folder / "checkout"), folder / "cifar-10-batches-bin");
  EXPECT_EQ(find_cifar100("", folder / "checkout"), folder / "cifar-100-binary");
  EXPECT_EQ(find_cifar10(folder / "given"), folder / "given/cifar-10-batches-bin");
  EXPECT_EQ(CIFAR10(folder.path(), Split::TEST).size(), 1) << "the set itself finds them, too";
  EXPECT_EQ(CIFAR100(folder.path(), Split::TRAIN).size(), 1);
}

TEST(FindCifar, NamesWhatOnlyPythonReads) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "cifar-10-batches-py");
  EXPECT_THAT([&] { find_cifar10(folder.path()); },
              ::testing::ThrowsMessage<InvalidArgument>(
                  HasSubstr("cifar-10-batches-py is there, which only Python can read")));
}

}  // namespace
}  // namespace lockstep
