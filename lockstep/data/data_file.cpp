#include "lockstep/data/data_file.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {

namespace fs = std::filesystem;

std::string data_file(const std::string& directory, const std::string& name) {
  std::vector<std::string> names = {name};
  if (const std::size_t idx = name.find("-idx"); idx != std::string::npos)
    names.push_back(str(name.substr(0, idx), '.', name.substr(idx + 1)));
  for (const std::string& one : names) {
    for (const char* ending : {"", ".gz"}) {
      fs::path path = fs::path(directory) / (one + ending);
      std::error_code ignored;
      if (fs::is_regular_file(path, ignored)) return path.string();
    }
  }
  return "";
}

std::string data_folder(const std::string& directory, const std::vector<std::string>& below,
                        const std::vector<std::string>& files) {
  std::vector<fs::path> folders = {directory};
  for (const std::string& folder : below) folders.push_back(fs::path(directory) / folder);
  const auto has_all = [&](const fs::path& folder) {
    return std::none_of(files.begin(), files.end(),
                        [&](const std::string& file) { return data_file(folder.string(), file).empty(); });
  };
  const auto found = std::find_if(folders.begin(), folders.end(), has_all);
  return found == folders.end() ? "" : found->string();
}

std::string only_for_python(const std::string& directory) {
  for (const char* name : {"cifar-10-batches-py", "cifar-10-python.tar.gz", "cifar-10-batches-py.tar.gz",
                           "cifar-100-python", "cifar-100-python.tar.gz", "mnist.npz"}) {
    std::error_code ignored;
    if (fs::exists(fs::path(directory) / name, ignored))
      return str("; ", name, " is there, which only Python can read");
  }
  return "";
}

std::string existing_data_file(const std::string& dataset, const std::string& directory,
                               const std::string& name) {
  std::string path = data_file(directory, name);
  if (path.empty())
    throw SystemError(
        str(dataset, ": neither \"", name, "\" nor \"", name, ".gz\" is in \"", printable(directory), '"'),
        ENOENT);
  return path;
}

std::string find_data_folder(const std::string& name, const std::vector<std::string>& files,
                             const FindDataOptions& options, const std::string& hint) {
  std::vector<fs::path> places;
  if (!options.directory.empty()) {
    places.emplace_back(options.directory);
  } else {
    std::vector<fs::path> roots;
    if (const auto folder = env("LOCKSTEP_DATA")) roots.emplace_back(*folder);
    roots.push_back(fs::path(options.checkout) / "data");
    for (const fs::path& root : roots) places.insert(places.end(), {root / name, root});
  }
  std::string looked;
  for (const fs::path& place : places) {
    const std::string found = data_folder(place.string(), options.below, files);
    if (!found.empty()) return found;
    std::string missing;
    for (const std::string& file : files)
      if (data_file(place.string(), file).empty()) missing += str(missing.empty() ? "" : ", ", file);
    looked += str(looked.empty() ? "" : "; ", '"', printable(place.string()), "\" lacks ", missing,
                  only_for_python(place.string()));
  }
  throw InvalidArgument(
      str(name, " was not found: ", looked, " (plain or .gz)", hint.empty() ? "" : ". ", hint));
}

}  // namespace lockstep
