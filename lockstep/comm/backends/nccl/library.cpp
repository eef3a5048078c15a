#include "lockstep/comm/backends/nccl/library.h"

#include <dlfcn.h>

#include <atomic>
#include <mutex>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::nccl {
namespace {

constexpr const char* NAME = "libnccl.so.2";
constexpr const char* STREAMS_ENTRY = "lockstep_device_streams_1";
constexpr int OLDEST = 21400;  // the first with non-blocking communicators

std::atomic<DeviceStreams*>& offered() {
  static std::atomic<DeviceStreams*> streams{nullptr};
  return streams;
}

std::string last_dlerror() {
  const char* const text = dlerror();  // NOLINT(concurrency-mt-unsafe): of this thread
  return text == nullptr ? "" : text;
}

[[noreturn]] void refuse_nccl(const std::string& why) { throw InvalidArgument("backend \"nccl\": " + why); }

void* load(std::string& path) {
  if (const auto wanted = env("LOCKSTEP_NCCL"); wanted && !wanted->empty()) {
    path = *wanted;
  } else {
    path = NAME;
    if (void* const there = dlopen(NAME, RTLD_NOW | RTLD_NOLOAD)) return there;
  }
  // NCCL's threads do not survive an unload.
  if (void* const loaded = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) return loaded;
  refuse_nccl(str("cannot load ", printable(path), ": ", last_dlerror(),
                  "; install NCCL (libnccl2), use a libtorch for CUDA, or set LOCKSTEP_NCCL to the path of ",
                  NAME));
}

template <typename Function>
void find(void* handle, const char* symbol, const std::string& path, Function& function) {
  function = reinterpret_cast<Function>(dlsym(handle, symbol));  // NOLINT: what dlsym is for
  if (function == nullptr)
    refuse_nccl(str(printable(path), " has no ", symbol, "; Lockstep needs NCCL 2.14 or later"));
}

Library load_library() {
  Library library;
  void* const handle = load(library.path);
#define LOCKSTEP_NCCL_FIND(member, symbol, parameters) find(handle, symbol, library.path, library.api.member);
  LOCKSTEP_NCCL_FUNCTIONS(LOCKSTEP_NCCL_FIND)
#undef LOCKSTEP_NCCL_FIND
  find(handle, "ncclGetErrorString", library.path, library.api.get_error_string);
  find(handle, "ncclGetLastError", library.path, library.api.get_last_error);
  if (const Result result = library.api.get_version(&library.version); result != SUCCESS)
    throw DistBackendError("backend \"nccl\": " + library.describe("ncclGetVersion", result, nullptr));
  if (library.version < OLDEST)
    refuse_nccl(str(printable(library.path), " is NCCL ", version_text(library.version), "; Lockstep needs ",
                    version_text(OLDEST), " or later"));
  using Entry = DeviceStreams* (*)();
  const auto own = reinterpret_cast<Entry>(dlsym(handle, STREAMS_ENTRY));  // NOLINT: what dlsym is for
  if (own != nullptr) library.streams = own();
  if (library.streams == nullptr) library.streams = offered().load();
  return library;
}

const Library& loaded() {
  static std::mutex mutex;
  static const Library* library = nullptr;
  const std::lock_guard lock(mutex);
  if (library == nullptr) library = new Library(load_library());
  return *library;
}

}  // namespace

std::string Library::describe(const char* function, Result result, Comm comm) const {
  const char* const last = api.get_last_error == nullptr ? nullptr : api.get_last_error(comm);
  const bool has_more = last != nullptr && *last != '\0';
  return str(function, ": ", api.get_error_string(result), has_more ? str(": ", printable(last)) : "");
}

std::string version_text(int version) {
  constexpr int MAJOR = 10000;
  constexpr int MINOR = 100;
  return str(version / MAJOR, ".", version / MINOR % MINOR, ".", version % MINOR);
}

const Library& open_library() {
  const Library& library = loaded();
  if (library.streams == nullptr)
    refuse_nccl(
        "this program has no CUDA: it does not use the library with tensors, or libtorch is not the one for "
        "CUDA");
  if (library.streams->device_count() == 0)
    refuse_nccl("there is no CUDA device here (nvidia-smi lists them; is CUDA_VISIBLE_DEVICES set?)");
  return library;
}

std::string describe_library() {
  try {
    const Library& library = loaded();
    return str(version_text(library.version), " (", printable(library.path), ")");
  } catch (const Error& error) {
    return error.what();
  }
}

void offer_streams(DeviceStreams* streams) { offered().store(streams); }

}  // namespace lockstep::nccl
