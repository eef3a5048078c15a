#include "lockstep/os/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/os/file_size_limit.h"

namespace lockstep {
namespace {

[[noreturn]] void fail(const char* what, const std::string& path, int error_number) {
  throw SystemError(str("cannot ", what, " \"", printable(path), '"'), error_number);
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

std::string temporary_name(const std::string& path) {
  static std::atomic<unsigned> counter = 0;
  const std::size_t slash = path.rfind('/');
  const std::size_t base = slash == std::string::npos ? 0 : slash + 1;
  return str(path.substr(0, base), '.', path.substr(base), '.', ::getpid(), '-', counter++, ".tmp");
}

}  // namespace

AtomicFile::AtomicFile(std::string path, Access access)
    : path_(std::move(path)), temporary_(temporary_name(path_)) {
  const mode_t mode = access == Access::PRIVATE ? 0600 : 0666;
  const auto create = [&] {
    return ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
  };
  file_.reset(create());
  if (!file_.valid() && errno == EEXIST) {
    ::unlink(temporary_.c_str());  // left by a killed process that had our process id
    file_.reset(create());
  }
  if (!file_.valid()) {
    temporary_.clear();
    fail("write", path_, errno);
  }
}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  const NoFileSizeSignal quiet;
  while (!bytes.empty()) {
    const ssize_t count = ::write(file_.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("write", path_, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void AtomicFile::commit(bool durable) {
  if (temporary_.empty())
    throw InternalError(str("AtomicFile: \"", printable(path_), "\" was committed before"));
  if (durable && ::fsync(file_.get()) != 0) fail("write", path_, errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("replace", path_, errno);
  temporary_.clear();
  if (!durable) return;
  const Fd folder(::open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems cannot sync a folder (EINVAL); the rename is then as durable as they make it.
  if (folder.valid() && ::fsync(folder.get()) != 0 && errno != EINVAL)
    fail("sync the folder of", path_, errno);
}

}  // namespace lockstep
