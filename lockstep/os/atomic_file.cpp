#include "lockstep/os/atomic_file.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/os/folder.h"

namespace lockstep {
namespace {

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
  try {
    file_.emplace(temporary_, access, path_);
  } catch (const SystemError& error) {
    const bool is_old = error.error_number() == EEXIST;  // left by a killed process that had our process id
    if (is_old) ::unlink(temporary_.c_str());
    if (!is_old) temporary_.clear();
    if (!is_old) throw;
  }
  if (!file_) file_.emplace(temporary_, access, path_);
}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) { file_->write(bytes); }

void AtomicFile::commit(bool durable) {
  if (temporary_.empty())
    throw InternalError(str("AtomicFile: \"", printable(path_), "\" was committed before"));
  if (durable) file_->sync();
  if (::rename(temporary_.c_str(), path_.c_str()) != 0)
    throw SystemError(str("cannot replace ", in_quotes(path_)), errno);
  temporary_.clear();
  if (durable) sync_folder(folder_of(path_));
}

}  // namespace lockstep
