#include "lockstep/data/mnist.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>

#include "lockstep/base/error.h"
#include "testing/gzip.h"
#include "testing/temp_folder.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using testing::gzip;
using ::testing::HasSubstr;
using testing::TempFolder;

// Images of 2 x 3 pixels; pixel i of the set is i.
std::string images(int count) {
  std::string file("\0\0\x08\x03\0\0\0\0\0\0\0\x02\0\0\0\x03", 16);
  file[7] = static_cast<char>(count);
  for (int i = 0; i < count * 6; ++i) file += static_cast<char>(i);
  return file;
}

std::string labels(const std::string& values) {
  std::string file("\0\0\x08\x01\0\0\0\0", 8);
  file[7] = static_cast<char>(values.size());
  return file + values;
}

TEST(MNIST, ReadsPlainAndGzipFilesOfEitherSplit) {
  const TempFolder folder;
  folder.write("train-images-idx3-ubyte.gz", gzip(images(40)));
  folder.write("train-labels-idx1-ubyte", labels(std::string(40, '\x07')));
  folder.write("t10k-images-idx3-ubyte", images(2));
  folder.write("t10k-labels-idx1-ubyte.gz", gzip(labels(std::string("\x03\x09", 2))));
  const MNIST train(folder.path(), Split::TRAIN);
  EXPECT_EQ(train.size(), 40);
  EXPECT_TRUE(at::equal(train.images().view(-1), at::arange(240).to(at::kByte)));
  EXPECT_TRUE(at::equal(train.targets(), at::full({40}, 7, at::kLong)));
  const MNIST test(folder.path(), Split::TEST);
  EXPECT_EQ(test.size(), 2);
  EXPECT_EQ(test.targets()[1].item<int>(), 9);
}

TEST(MNIST, BatchesEqualWhatLibtorchComputes) {
  const TempFolder folder;
  folder.write("train-images-idx3-ubyte", images(42));
  folder.write("train-labels-idx1-ubyte", labels(std::string(41, '\x01') + '\x08'));
  const MNIST train(folder.path(), Split::TRAIN);
  const std::vector<std::int64_t> indices = {41, 0, 17, 17};
  const Batch batch = train.get_batch(indices);
  const at::Tensor pixels = train.images().index_select(0, at::tensor(indices)).to(at::kFloat);
  EXPECT_TRUE(at::equal(batch.data, pixels.div(255).sub(0.1307F).div(at::full({1}, 0.3081F))));
  EXPECT_TRUE(at::equal(batch.target, at::tensor({8, 1, 1, 1}, at::kLong)));
  EXPECT_EQ(train.get_batch({}).data.sizes(), at::IntArrayRef({0, 1, 2, 3}));
  EXPECT_TRUE(at::equal(train.image(41), at::arange(246, 252).reshape({1, 2, 3}).to(at::kByte)));
  EXPECT_EQ(train.target(41), 8);
  for (const std::int64_t bad : {-1, 42}) {
    EXPECT_THROW(train.get_batch(std::vector{bad}), InvalidArgument);
    EXPECT_THROW(train.image(bad), InvalidArgument);
    EXPECT_THROW(train.target(bad), InvalidArgument);
  }
}

TEST(MNIST, FashionIsNormalisedByItsOwnMeanAndDeviation) {
  const std::string debian = "/usr/share/datasets/fashion-mnist";
  if (!std::filesystem::exists(debian)) GTEST_FAIL() << "install the Debian package dataset-fashion-mnist";
  const FashionMNIST train(debian, Split::TRAIN);
  std::vector<std::int64_t> all(static_cast<std::size_t>(train.size()));
  std::iota(all.begin(), all.end(), 0);
  const at::Tensor data = train.get_batch(all).data;
  EXPECT_EQ(data.size(0), 60000);
  EXPECT_NEAR(data.mean(at::kDouble).item<double>(), 0, 1e-3);
  EXPECT_NEAR(data.to(at::kDouble).std().item<double>(), 1, 1e-3);
  EXPECT_TRUE(at::equal(train.targets().bincount(), at::full({10}, 6000, at::kLong)));
}

template <typename ErrorType>
std::string mnist_refusal(const std::string& image_file, const std::string& label_file) {
  const TempFolder folder;
  folder.write("t10k-images-idx3-ubyte", image_file);
  folder.write("t10k-labels-idx1-ubyte", label_file);
  try {
    const MNIST data(folder.path(), Split::TEST);
  } catch (const ErrorType& error) {
    return error.what();
  }
  return "accepted";
}

TEST(MNIST, RefusesFilesThatDoNotFitTogether) {
  EXPECT_EQ(mnist_refusal<FormatError>(images(2), labels("\x01\x02")), "accepted");
  EXPECT_THAT(mnist_refusal<FormatError>(images(2), labels(std::string("\x00\x0a", 2))),
              AllOf(HasSubstr("t10k-labels-idx1-ubyte"),
                    HasSubstr("label 10 of item 1 is out of range, expected 0 to 9")));
  EXPECT_THAT(mnist_refusal<FormatError>(images(2), labels("\x01")),
              AllOf(HasSubstr("t10k-labels"), HasSubstr("1 labels for 2 images")));
  EXPECT_THAT(mnist_refusal<FormatError>(images(0), labels("")),
              AllOf(HasSubstr("t10k-images"), HasSubstr("holds no images")));
  EXPECT_THAT(mnist_refusal<FormatError>(labels("\x01"), labels("\x01")),
              AllOf(HasSubstr("t10k-images"), HasSubstr("1 dimension(s), expected 3")));
}

TEST(MNIST, NamesTheFileThatIsMissing) {
  const TempFolder folder;
  try {
    const MNIST data(folder.path(), Split::TRAIN);
    ADD_FAILURE() << "accepted";
  } catch (const SystemError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("train-images-idx3-ubyte.gz"), HasSubstr(folder.path())));
  }
}

}  // namespace
}  // namespace lockstep
