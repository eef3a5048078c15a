#include "lockstep/os/private_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

void make_folders(const std::filesystem::path& folder) {
  std::error_code ignored;  // if a folder cannot be inspected, mkdir() fails too and reports why
  if (std::filesystem::is_directory(folder, ignored)) return;
  if (folder.has_parent_path() && folder.parent_path() != folder) make_folders(folder.parent_path());
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    throw SystemError(str("cannot make the folder ", printable(folder.string())), errno);
  }
}

// Names of sockets have up to 47 characters, and the kernel accepts paths of 107.
constexpr std::size_t LONGEST_FOLDER = 59;

// After su or sudo, XDG_RUNTIME_DIR may still be the other user's. A folder of this user there would block
// that user's jobs.
bool is_of_this_user(const std::string& folder) {
  struct stat status = {};
  return stat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid();
}

// Returns why this user cannot create sockets in `folder`; errno has the system's reason. Empty if it can.
// Creates the folder if it is missing.
std::string why_unfit(const std::string& folder) {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return "cannot create the folder " + printable(folder);
  struct stat status = {};
  if (lstat(folder.c_str(), &status) != 0) return "cannot inspect " + printable(folder);
  constexpr mode_t OTHERS = S_IRWXG | S_IRWXO;
  if (!S_ISDIR(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & OTHERS) != 0) {
    errno = EPERM;
    return printable(folder) +
           " must be a folder of this user with mode 0700; remove it or set XDG_RUNTIME_DIR";
  }
  return access(folder.c_str(), W_OK | X_OK) == 0 ? "" : "cannot make files in " + printable(folder);
}

}  // namespace

void make_private_folders(const std::string& path) {
  make_folders(std::filesystem::absolute(path).lexically_normal());
}

PrivateFolder PrivateFolder::create(const std::string& base, const std::string& name) {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::absolute(base, error).lexically_normal();
  if (error)
    throw SystemError(str("cannot find the folder ", printable(base), ": the current folder is gone"),
                      error.value());
  make_folders(parent);
  const std::filesystem::path path = parent / name;
  if (mkdir(path.c_str(), 0700) != 0) {
    throw SystemError(str("cannot make the folder ", printable(path.string())), errno);
  }
  Fd folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder.valid()) throw SystemError(str("cannot open the folder ", printable(path.string())), errno);
  return {std::move(folder), path.string()};
}

Fd PrivateFolder::create_file(const std::string& name) const {
  Fd file(openat(folder_.get(), name.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                 0600));
  if (!file.valid()) throw SystemError(str("cannot make ", printable(path_ + "/" + name)), errno);
  return file;
}

std::string user_private_folder() {
  if (const auto runtime = env("XDG_RUNTIME_DIR")) {
    const std::string folder = *runtime + "/lockstep";
    if (is_of_this_user(*runtime) && folder.size() <= LONGEST_FOLDER && why_unfit(folder).empty())
      return folder;
  }
  const std::string folder = str("/tmp/lockstep-", geteuid());
  const std::string why = why_unfit(folder);
  if (!why.empty()) throw SystemError(why, errno);
  return folder;
}

std::string user_private_folder_id() {
  try {
    struct stat status = {};
    if (stat(user_private_folder().c_str(), &status) == 0) return str(status.st_dev, ':', status.st_ino);
  } catch (const SystemError&) {  // the folder is not usable for this user
  }
  return "none";
}

}  // namespace lockstep
