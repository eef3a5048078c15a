#include "lockstep/data/find_mnist.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/data/download.h"
#include "lockstep/data/mnist.h"
#include "testing/gzip.h"
#include "testing/temp_folder.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::gzip;
using ::testing::HasSubstr;
using testing::TempFolder;

// From FIPS 180-2: SHA-256 of "abc" and of "".
constexpr const char* SHA_ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
constexpr const char* SHA_NOTHING = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
// Nothing listens on port 1 of this machine, and .invalid is never resolved (RFC 2606).
constexpr const char* DEAD_MIRROR = "http://127.0.0.1:1/";
constexpr const char* UNKNOWN_MIRROR = "http://mirror.invalid/";

std::string mirror_of(const TempFolder& folder) { return "file://" + folder.path() + "/"; }

TEST(Download, ChecksTheUnpackedContent) {
  const TempFolder folder;
  EXPECT_EQ(unpacked_sha256(folder.write("plain", "abc")), SHA_ABC);
  EXPECT_EQ(unpacked_sha256(folder.write("packed", gzip("abc"))), SHA_ABC);
  EXPECT_EQ(unpacked_sha256(folder.write("empty", "")), SHA_NOTHING);
}

TEST(Download, TakesTheFirstMirrorThatHasTheRightFile) {
  const TempFolder empty;
  const TempFolder wrong;
  const TempFolder broken;
  const TempFolder right;
  wrong.write("a.gz", gzip("<html>not found</html>"));
  broken.write("a.gz", gzip("abc").substr(0, 15));
  right.write("a.gz", gzip("abc"));
  right.write("b.gz", gzip(""));
  const TempFolder target;
  const std::vector<DownloadFile> files = {{"a", SHA_ABC}, {"b", SHA_NOTHING}};
  const std::vector<std::string> mirrors = {DEAD_MIRROR, mirror_of(empty), mirror_of(wrong),
                                            mirror_of(broken), mirror_of(right)};
  EXPECT_EQ(download(target / "new/folder", files, mirrors), std::nullopt);
  EXPECT_EQ(unpacked_sha256(target / "new/folder/a.gz"), SHA_ABC);
  EXPECT_EQ(unpacked_sha256(target / "new/folder/b.gz"), SHA_NOTHING);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(target / "new/folder"), {}), 2)
      << "no partial files";
}

TEST(Download, SaysWhyNothingCame) {
  const TempFolder target;
  const std::vector<DownloadFile> files = {{"a", SHA_ABC}};
  const auto reason = [&](const std::vector<std::string>& mirrors) {
    return download(target.path(), files, mirrors).value_or("it came");
  };
  EXPECT_THAT(reason({DEAD_MIRROR}), HasSubstr("http://127.0.0.1:1/a.gz: curl: ("));
  EXPECT_THAT(reason({DEAD_MIRROR, UNKNOWN_MIRROR}), HasSubstr("http://mirror.invalid/a.gz: curl: ("));
  EXPECT_THAT(reason({}), HasSubstr("no mirrors"));
  const TempFolder wrong;
  wrong.write("a.gz", gzip("abd"));
  EXPECT_THAT(reason({mirror_of(wrong)}), HasSubstr("another SHA-256"));
  EXPECT_TRUE(std::filesystem::is_empty(target.path()));
  const std::string in_the_way = target.write("file", "");
  EXPECT_THAT(download(in_the_way, files, {}).value_or(""), HasSubstr("cannot make the folder"));
}

TEST(Download, LeavesWhatIsThere) {
  const TempFolder target;
  target.write("a", "anything");
  EXPECT_EQ(download(target.path(), std::vector<DownloadFile>{{"a", SHA_ABC}}, {}), std::nullopt);
  EXPECT_EQ(target.read("a"), "anything");
}

// A machine with no data anywhere: every place is a folder of the test's own, and no mirror answers.
class FindMnist : public ::testing::Test {
 public:
  FindMnist() {
    ::setenv("LOCKSTEP_DATA", (folder_ / "lockstep-data").c_str(), 1);
    options_.checkout = folder_ / "checkout";
    options_.mirrors = {DEAD_MIRROR};
    options_.debian_fashion_mnist = folder_ / "debian";
    options_.say = [this](const std::string& line) { said_.push_back(line); };
  }
  ~FindMnist() override { ::unsetenv("LOCKSTEP_DATA"); }
  FindMnist(const FindMnist&) = delete;
  FindMnist& operator=(const FindMnist&) = delete;

 protected:
  std::string put(const std::string& place, const std::string& ending = ".gz") const {
    std::filesystem::create_directories(folder_ / place);
    for (const char* name : MNIST_FILES) folder_.write(str(place, '/', name, ending), "not looked at here");
    return folder_ / place;
  }
  std::string refusal() const {
    try {
      find_mnist(options_);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "found";
  }

  TempFolder folder_;
  FindMnistOptions options_;
  std::vector<std::string> said_;
};

TEST_F(FindMnist, LooksInThePlacesInOrder) {
  const std::string debian = put("debian");
  EXPECT_EQ(find_mnist(options_).directory, debian);
  EXPECT_EQ(find_mnist(options_).dataset, "fashion-mnist");
  const std::string checkout = put("checkout/data/mnist", "");
  EXPECT_EQ(find_mnist(options_).directory, checkout);
  const std::string data = put("lockstep-data/mnist");
  EXPECT_EQ(find_mnist(options_).directory, data);
  EXPECT_EQ(find_mnist(options_).dataset, "mnist");
  options_.directory = put("elsewhere");
  EXPECT_EQ(find_mnist(options_).directory, options_.directory);
  EXPECT_EQ(find_mnist(options_).dataset, "elsewhere") << "the folder's name, for data nobody knows";
}

TEST_F(FindMnist, FindsTheFilesWhereTorchvisionAndKerasPutThem) {
  const std::string raw = put("torchvision/MNIST/raw", "");
  const std::string fashion = put("torchvision/FashionMNIST/raw", "");
  const std::string keras = put("keras/fashion-mnist");
  options_.directory = folder_ / "torchvision";
  EXPECT_EQ(find_mnist(options_).directory, raw);
  options_.directory = folder_ / "torchvision/MNIST";
  EXPECT_EQ(find_mnist(options_).directory, raw);
  options_.directory = folder_ / "torchvision";
  options_.dataset = "fashion-mnist";
  EXPECT_EQ(find_mnist(options_).directory, fashion);
  options_.directory = folder_ / "keras";
  EXPECT_EQ(find_mnist(options_).directory, keras);
  options_ = {.checkout = folder_ / "checkout", .may_download = false};
  const std::string usual = put("lockstep-data/MNIST/raw");
  EXPECT_EQ(find_mnist(options_).directory, usual);
}

TEST_F(FindMnist, FindsNamesWithADot) {
  std::filesystem::create_directories(folder_ / "dots");
  for (const char* name : {"train-images.idx3-ubyte", "train-labels.idx1-ubyte.gz", "t10k-images.idx3-ubyte",
                           "t10k-labels.idx1-ubyte"})
    folder_.write(std::string("dots/") + name, "not looked at here");
  options_.directory = folder_ / "dots";
  EXPECT_EQ(find_mnist(options_).directory, options_.directory);
}

TEST_F(FindMnist, NamesWhatOnlyPythonReads) {
  folder_.write("mnist.npz", "PK");
  options_.directory = folder_.path();
  EXPECT_THAT(refusal(), HasSubstr("mnist.npz is there, which only Python can read"));
}

TEST_F(FindMnist, PassesOverIncompleteFolders) {
  const std::string checkout = put("checkout/data/mnist");
  const std::string data = put("lockstep-data/mnist");
  std::filesystem::remove(data + "/t10k-labels-idx1-ubyte.gz");
  EXPECT_EQ(find_mnist(options_).directory, checkout);
}

TEST_F(FindMnist, FallsBackToFashionMnistWithOneClearLine) {
  put("debian");
  find_mnist(options_);
  EXPECT_THAT(said_, ElementsAre(HasSubstr("downloading it to " + folder_ / "checkout/data/mnist"),
                                 AllOf(HasSubstr("could not be downloaded (http://127.0.0.1:1/"),
                                       HasSubstr("Fashion-MNIST of Debian's package"))));
  options_.dataset = "mnist";
  EXPECT_THAT(refusal(), AllOf(HasSubstr("could not be downloaded"), HasSubstr("--data")));
}

TEST_F(FindMnist, GivesFashionMnistToWhoAsksForIt) {
  options_.dataset = "fashion-mnist";
  EXPECT_THAT(refusal(), HasSubstr("install the Debian package dataset-fashion-mnist"));
  const std::string debian = put("debian");
  EXPECT_EQ(find_mnist(options_).directory, debian);
  const std::string checkout = put("checkout/data/fashion-mnist");
  EXPECT_EQ(find_mnist(options_).directory, checkout);
  const std::string data = put("lockstep-data/fashion-mnist");
  EXPECT_EQ(find_mnist(options_).directory, data);
  EXPECT_TRUE(said_.empty());
}

TEST_F(FindMnist, SaysWhatIsWrongWithTheArguments) {
  options_.directory = folder_.path();
  EXPECT_THAT(refusal(), AllOf(HasSubstr("--data \"" + folder_.path()),
                               HasSubstr("lacks train-images-idx3-ubyte, train-labels")));
  options_ = {.dataset = "cifar"};
  EXPECT_THAT(refusal(), HasSubstr("--dataset \"cifar\": expected mnist or fashion-mnist"));
}

TEST_F(FindMnist, RefusesTheOtherDataSetByItsLabels) {
  const std::string debian = FindMnistOptions().debian_fashion_mnist;
  if (!std::filesystem::exists(debian)) GTEST_FAIL() << "install the Debian package dataset-fashion-mnist";
  options_.directory = debian;
  EXPECT_EQ(find_mnist(options_).dataset, "fashion-mnist");
  options_.dataset = "mnist";
  EXPECT_THAT(refusal(), HasSubstr("holds fashion-mnist, and --dataset asks for mnist"));
  EXPECT_EQ(MNIST(debian, Split::TRAIN).size(), 60000);
  EXPECT_EQ(MNIST(debian, Split::TEST).size(), 10000);
}

TEST_F(FindMnist, ContentThatIsNotMnistIsNotTaken) {
  const TempFolder mirror;
  put("debian");
  options_.mirrors = {mirror_of(mirror)};
  for (const char* name : MNIST_FILES) mirror.write(name + std::string(".gz"), gzip("not MNIST"));
  EXPECT_EQ(find_mnist(options_).dataset, "fashion-mnist") << "its SHA-256 is wrong";
  EXPECT_THAT(said_.back(), HasSubstr("another SHA-256"));
  options_.may_download = false;
  EXPECT_EQ(find_mnist(options_).dataset, "fashion-mnist") << "ranks that do not download decide alike";
}

}  // namespace
}  // namespace lockstep
