#include "lockstep/data/find_mnist.h"

#include <array>
#include <filesystem>
#include <optional>
#include <vector>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/data/data_file.h"
#include "lockstep/data/download.h"
#include "lockstep/data/mnist.h"
#include "lockstep/job/job.h"
#include "lockstep/tensor/collectives.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr const char* NAME_MNIST = "mnist";
constexpr const char* NAME_FASHION = "fashion-mnist";
constexpr const char* FASHION_TRAIN_LABELS =
    "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9";

// In the order of MNIST_FILES.
const std::array<DownloadFile, 4>& mnist_downloads() {
  static const std::array<DownloadFile, 4> files = {{
      {MNIST_FILES[0], "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"},
      {MNIST_FILES[1], "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"},
      {MNIST_FILES[2], "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"},
      {MNIST_FILES[3], "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"},
  }};
  return files;
}

// Returns the files that `directory` lacks, as a list; empty if it has all.
std::string missing_files(const std::string& directory) {
  std::string missing;
  for (const char* name : MNIST_FILES)
    if (data_file(directory, name).empty()) missing += str(missing.empty() ? "" : ", ", name);
  return missing;
}

// Returns `place` or the first folder below it that has all files; "" if there is none.
std::string complete_folder(const fs::path& place, const std::vector<std::string>& below) {
  return data_folder(place.string(), below, {MNIST_FILES.begin(), MNIST_FILES.end()});
}

// Subfolders of `dataset` in a folder of several data sets; those of both if it is "".
std::vector<std::string> folders_of(const std::string& dataset) {
  std::vector<std::string> folders;
  if (dataset != NAME_FASHION) folders.assign(MNIST_FOLDERS.begin(), MNIST_FOLDERS.end());
  if (dataset != NAME_MNIST)
    folders.insert(folders.end(), FASHION_MNIST_FOLDERS.begin(), FASHION_MNIST_FOLDERS.end());
  return folders;
}

// Returns which data set a complete folder holds, by its training labels; "" for another one.
std::string identify(const std::string& directory) {
  const std::string sha256 = unpacked_sha256(data_file(directory, MNIST_FILES[1]));
  if (sha256 == mnist_downloads()[1].sha256) return NAME_MNIST;
  return sha256 == FASHION_TRAIN_LABELS ? NAME_FASHION : "";
}

// The name of "data/../mnist/." is "mnist". A folder whose parents cannot be read keeps the given name.
std::string name_of_folder(const std::string& directory) {
  std::error_code error;
  const fs::path path = fs::weakly_canonical(directory, error);
  return (error ? fs::path(directory) : path).filename().string();
}

FoundMnist given_directory(const FindMnistOptions& options) {
  const std::string found = complete_folder(options.directory, folders_of(options.dataset));
  if (found.empty())
    throw InvalidArgument(str("--data ", in_quotes(options.directory), " lacks ",
                              missing_files(options.directory), " (plain or .gz)",
                              only_for_python(options.directory)));
  std::string dataset = identify(found);
  if (!options.dataset.empty() && !dataset.empty() && dataset != options.dataset)
    throw InvalidArgument(str("--data ", in_quotes(options.directory), " holds ", dataset,
                              ", and --dataset asks for ", options.dataset));
  if (dataset.empty()) dataset = options.dataset;
  if (dataset.empty()) dataset = name_of_folder(options.directory);
  return {found, dataset};
}

// Returns the first of the usual places that has all files; "" if there is none.
std::string usual_folder(const FindMnistOptions& options, const char* name) {
  std::vector<fs::path> roots;
  if (const auto folder = env("LOCKSTEP_DATA")) roots.emplace_back(*folder);
  roots.push_back(fs::path(options.checkout) / "data");
  for (const fs::path& root : roots) {
    for (const fs::path& place : {root / name, root}) {
      const std::string found =
          complete_folder(place, place == root ? folders_of(name) : std::vector<std::string>());
      if (!found.empty()) return found;
    }
  }
  return "";
}

FoundMnist fashion(const FindMnistOptions& options) {
  std::string found = usual_folder(options, NAME_FASHION);
  if (found.empty()) found = complete_folder(options.debian_fashion_mnist, {});
  if (found.empty())
    throw InvalidArgument(
        str("Fashion-MNIST is not on this machine: install the Debian package dataset-fashion-mnist, or put "
            "its files into ",
            in_quotes((fs::path(options.checkout) / "data" / NAME_FASHION).string()),
            ", or name their folder with --data"));
  return {found, NAME_FASHION};
}

// Returns nothing if it succeeds, else the reason.
std::optional<std::string> try_download(const FindMnistOptions& options, const std::string& directory) {
  if (!options.may_download) return "another rank was to download it";
  options.say(str("MNIST is not on this machine; downloading it to ", directory));
  return download(directory, mnist_downloads(), options.mirrors);
}

}  // namespace

FoundMnist find_mnist(const FindMnistOptions& options) {
  if (!options.dataset.empty() && options.dataset != NAME_MNIST && options.dataset != NAME_FASHION)
    throw InvalidArgument(
        str("--dataset ", in_quotes(options.dataset), ": expected ", NAME_MNIST, " or ", NAME_FASHION));
  if (!options.directory.empty()) return given_directory(options);
  if (options.dataset == NAME_FASHION) return fashion(options);

  const std::string found = usual_folder(options, NAME_MNIST);
  if (!found.empty()) return {found, NAME_MNIST};
  const std::string target = (fs::path(options.checkout) / "data" / NAME_MNIST).string();
  const std::optional<std::string> problem = try_download(options, target);
  if (!problem) return {target, NAME_MNIST};
  const std::string reason = str("MNIST could not be downloaded (", *problem, ")");
  if (options.dataset == NAME_MNIST || complete_folder(options.debian_fashion_mnist, {}).empty())
    throw InvalidArgument(
        str(reason, "; put its four files into ", in_quotes(target), ", or name their folder with --data"));
  options.say(str(reason, "; taking the Fashion-MNIST of Debian's package dataset-fashion-mnist"));
  return {options.debian_fashion_mnist, NAME_FASHION};
}

FoundMnist find_mnist_on_all_ranks(const FindMnistOptions& options) {
  if (get_local_rank() == 0) {
    FoundMnist found = find_mnist(options);
    barrier().wait();
    return found;
  }
  FindMnistOptions quiet = options;
  quiet.may_download = false;
  quiet.say = [](const std::string&) {};
  barrier().wait();
  return find_mnist(quiet);
}

}  // namespace lockstep
