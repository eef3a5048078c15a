#include "lockstep/os/passed_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/os/file_size_limit.h"

namespace lockstep {

PassedFile::PassedFile(const std::string& folder) : path_(str(folder, "/.lockstep-memory-XXXXXX")) {}

PassedFile::~PassedFile() {
  if (is_maker_) ::unlink(path_.c_str());
}

PassedFile::Ending PassedFile::create(std::size_t bytes) {
  file_.reset(::mkostemp(path_.data(), O_CLOEXEC));
  if (!file_.valid()) throw SystemError(str("cannot make ", in_quotes(path_)), errno);
  is_maker_ = true;
  int failed = 0;
  do {
    const NoFileSizeSignal quiet;
    failed = ::posix_fallocate(file_.get(), 0, static_cast<off_t>(bytes));
  } while (failed == EINTR);
  if (failed != 0) throw SystemError(str("cannot reserve ", bytes, " bytes in ", in_quotes(path_)), failed);
  Ending ending{};
  std::copy(path_.end() - static_cast<std::ptrdiff_t>(ending.size()), path_.end(), ending.begin());
  return ending;
}

void PassedFile::open(const Ending& ending) {
  std::copy(ending.begin(), ending.end(), path_.end() - static_cast<std::ptrdiff_t>(ending.size()));
  file_.reset(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
  if (!file_.valid())
    throw SystemError(str("cannot open ", in_quotes(path_), ", which another process has made"), errno);
}

std::shared_ptr<void> PassedFile::map(std::size_t bytes) const {
  void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
  if (data == MAP_FAILED) throw SystemError(str("cannot map ", bytes, " bytes of ", in_quotes(path_)), errno);
  return {data, [bytes](void* mapped) { ::munmap(mapped, bytes); }};
}

}  // namespace lockstep
