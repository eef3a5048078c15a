#include "lockstep/os/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

struct stat inspect(const Fd& file, const std::string& path) {
  struct stat status = {};
  if (fstat(file.get(), &status) != 0) throw SystemError(str("cannot inspect ", in_quotes(path)), errno);
  return status;
}

}  // namespace

// O_NONBLOCK, because opening a named pipe would otherwise wait for a writer.
MappedFile::MappedFile(std::string path)
    : path_(std::move(path)), file_(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (!file_.valid()) throw SystemError(str("cannot open ", in_quotes(path_)), errno);
  const struct stat status = inspect(file_, path_);
  if (!S_ISREG(status.st_mode))
    throw SystemError(str("cannot map ", in_quotes(path_), ", which is not a plain file"), EINVAL);
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return;  // nothing to map
  void* const address = mmap(nullptr, size, PROT_READ, MAP_SHARED, file_.get(), 0);
  if (address == MAP_FAILED) throw SystemError(str("cannot map ", in_quotes(path_)), errno);
  madvise(address, size, MADV_DONTDUMP);
  bytes_ = {static_cast<const std::byte*>(address), size};
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::move(other.file_)),
      bytes_(std::exchange(other.bytes_, std::span<const std::byte>())) {}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::check_size() const {
  const auto size = static_cast<std::size_t>(inspect(file_, path_).st_size);
  if (size < bytes_.size())
    throw SystemError(str(in_quotes(path_), " has been cut to ", size, " bytes, it had ", bytes_.size(),
                          " when it was opened"),
                      EIO);
}

}  // namespace lockstep
