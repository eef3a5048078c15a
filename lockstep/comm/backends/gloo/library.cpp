#include "lockstep/comm/backends/gloo/library.h"

#include <dlfcn.h>

#include <mutex>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/backends/modules/module_file.h"

namespace lockstep::gloo {
namespace {

constexpr const char* FILE_NAME = "lockstep_gloo.so";

// The runtime of g++'s sanitizers ends the process at a dlopen with RTLD_DEEPBIND.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool CAN_DEEPBIND = false;
#else
constexpr bool CAN_DEEPBIND = true;
#endif

}  // namespace

std::string find_library() { return find_module(FILE_NAME); }

Module& open_library_at(const std::string& path) {
  if (path.empty())
    throw InvalidArgument(
        str("backend \"gloo\" needs ", FILE_NAME, ", and it is in none of ", module_folders(),
            "; install libgloo-dev and build Lockstep again, which then makes this module"));
  if (!CAN_DEEPBIND)
    throw InvalidArgument(
        "backend \"gloo\" cannot run in a build with -fsanitize=thread or address, which do not permit "
        "RTLD_DEEPBIND; use backend \"tcp\" there");
  using Entry = Module* (*)();
  void* const entry = open_module("gloo", path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND, MODULE_ENTRY);
  return *reinterpret_cast<Entry>(entry)();  // NOLINT: what dlsym is for
}

Module& open_library() {
  static std::mutex mutex;
  static Module* opened = nullptr;
  const std::lock_guard lock(mutex);
  if (opened == nullptr) opened = &open_library_at(find_library());
  return *opened;
}

}  // namespace lockstep::gloo
