#include "lockstep/os/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/os/fd.h"

namespace lockstep {
namespace {

constexpr mode_t AS_UMASK = 0777;

[[noreturn]] void fail(const char* what, const std::string& path, int error_number) {
  throw SystemError(str("cannot ", what, ' ', in_quotes(path)), error_number);
}

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

}  // namespace

bool is_folder(const std::string& path) {
  struct stat status = {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

bool is_file(const std::string& path) {
  struct stat status = {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

void make_folder(const std::string& path) {
  if (::mkdir(path.c_str(), AS_UMASK) != 0) fail("make the folder", path, errno);
}

void make_folders(const std::string& path) {
  for (std::size_t end = 0; end != std::string::npos;) {
    end = path.find('/', end + 1);
    const std::string folder = path.substr(0, end);
    if (folder.empty()) continue;
    if (::mkdir(folder.c_str(), AS_UMASK) == 0) {
      sync_folder(folder + "/..");
      continue;
    }
    // mkdir() reports EEXIST for an existing folder, but also other errors, such as EROFS.
    const int error_number = errno;
    if (!is_folder(folder)) fail("make the folder", path, error_number == EEXIST ? ENOTDIR : error_number);
  }
}

std::vector<std::string> names_in(const std::string& folder) {
  const std::unique_ptr<DIR, CloseFolder> open(::opendir(folder.c_str()));
  if (!open) fail("list the folder", folder, errno);
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* const entry = ::readdir(open.get());  // NOLINT(concurrency-mt-unsafe): its own DIR
    if (entry == nullptr && errno != 0) fail("list the folder", folder, errno);
    if (entry == nullptr) break;
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

void sync_folder(const std::string& path) {
  const Fd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid() && errno == EACCES) return;  // this user may write to the folder, but not open it
  if (!folder.valid()) fail("open the folder", path, errno);
  while (::fsync(folder.get()) != 0) {
    // The file system cannot sync folders; renames are as durable as it makes them.
    if (errno == EINVAL) return;
    if (errno != EINTR) fail("sync the folder", path, errno);
  }
}

void rename_path(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    throw SystemError(str("cannot rename ", in_quotes(from), " to ", in_quotes(to)), errno);
}

bool exchange_paths(const std::string& a, const std::string& b) {
  if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (errno == EINVAL || errno == ENOSYS) return false;
  throw SystemError(str("cannot exchange ", in_quotes(a), " and ", in_quotes(b)), errno);
}

void remove_flat_folder(const std::string& path) {
  for (const std::string& name : names_in(path)) {
    const std::string file = str(path, '/', name);
    if (::unlink(file.c_str()) != 0 && errno != ENOENT) fail("remove", file, errno);
  }
  if (::rmdir(path.c_str()) != 0) fail("remove the folder", path, errno);
}

}  // namespace lockstep
