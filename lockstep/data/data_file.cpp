#include "lockstep/data/data_file.h"

#include <cerrno>
#include <filesystem>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {

namespace fs = std::filesystem;

std::string data_file(const std::string& directory, const std::string& name) {
  for (const char* ending : {"", ".gz"}) {
    fs::path path = fs::path(directory) / (name + ending);
    std::error_code ignored;
    if (fs::is_regular_file(path, ignored)) return path.string();
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
    if (const auto folder = env("LOCKSTEP_DATA")) places.push_back(fs::path(*folder) / name);
    places.push_back(fs::path(options.checkout) / "data" / name);
  }
  std::string looked;
  for (const fs::path& place : places) {
    std::string missing;
    for (const std::string& file : files)
      if (data_file(place.string(), file).empty()) missing += str(missing.empty() ? "" : ", ", file);
    if (missing.empty()) return place.string();
    looked += str(looked.empty() ? "" : "; ", '"', printable(place.string()), "\" lacks ", missing);
  }
  throw InvalidArgument(
      str(name, " was not found: ", looked, " (plain or .gz)", hint.empty() ? "" : ". ", hint));
}

}  // namespace lockstep
