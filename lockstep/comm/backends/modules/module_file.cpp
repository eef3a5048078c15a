#include "lockstep/comm/backends/modules/module_file.h"

#include <dlfcn.h>

#include <filesystem>
#include <sstream>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

std::vector<std::string> folders() {
  std::vector<std::string> all;
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  if (!program.empty()) {
    all.push_back(program.string());
    all.push_back((program.parent_path() / "lib" / "lockstep").string());
  }
  std::istringstream built(LOCKSTEP_MODULE_FOLDERS);
  for (std::string folder; std::getline(built, folder, ':');) all.push_back(folder);
  return all;
}

}  // namespace

std::string find_module(const std::string& file) {
  std::error_code ignored;
  for (const std::string& folder : folders()) {
    const std::filesystem::path path = std::filesystem::path(folder) / file;
    if (std::filesystem::exists(path, ignored)) return path.string();
  }
  return "";
}

std::string module_folders() {
  std::string text;
  for (const std::string& folder : folders()) text += str(text.empty() ? "" : ", ", folder);
  return text;
}

void* open_module(std::string_view backend, const std::string& path, int flags, const char* entry) {
  const std::string where = str("backend \"", backend, "\": ");
  void* const handle = dlopen(path.c_str(), flags | RTLD_NODELETE);
  if (handle == nullptr) {
    const char* const why = dlerror();  // NOLINT(concurrency-mt-unsafe): of this thread
    throw InvalidArgument(str(where, "cannot load ", path, ": ", why == nullptr ? "" : why));
  }
  void* const address = dlsym(handle, entry);
  if (address == nullptr)
    throw InvalidArgument(
        str(where, path, " was built with another version of Lockstep; build or install it again"));
  return address;
}

}  // namespace lockstep
