// Folders that only this user can enter (0700), whatever the umask: PrivateFolder for files, and one folder
// per user for sockets.
//
//   PrivateFolder run = PrivateFolder::create("runs", "20261120-1a2b3c4d");
//   Fd log = run.create_file("rank0.log");                                      // 0600
//   Fd listener = listen_at(user_private_folder() + "/job");                    // os/unix_socket.h
//
// Files are created through the folder's descriptor and must not exist (O_EXCL, O_NOFOLLOW), so no other user
// can redirect them.
#pragma once

#include <string>

#include "lockstep/os/fd.h"

namespace lockstep {

// Creates the folder and all missing folders above it (0700). An existing folder keeps its mode. Throws
// SystemError.
void make_private_folders(const std::string& path);

class PrivateFolder {
 public:
  // Creates `base` if it is missing (0700), and in it `name`, which must not exist. Throws SystemError.
  static PrivateFolder create(const std::string& base, const std::string& name);

  const std::string& path() const { return path_; }  // absolute
  Fd create_file(const std::string& name) const;     // opened for appending. Throws SystemError

 private:
  PrivateFolder(Fd folder, std::string path) : folder_(std::move(folder)), path_(std::move(path)) {}

  Fd folder_;
  std::string path_;
};

// The folder for the sockets of this user's processes: $XDG_RUNTIME_DIR/lockstep, or /tmp/lockstep-UID. The
// second is used if the variable is unset, or names a folder that is missing, read-only, of another user, or
// too long for sockets. This happens after su or sudo, under Slurm and in containers. Creates the folder if
// it is missing. Throws SystemError if the one in /tmp is a link, belongs to another user, or is open to
// others.
std::string user_private_folder();

// Identifies that folder: equal for processes of one machine that see the same file system. Never fails;
// "none" if there is no such folder.
std::string user_private_folder_id();

}  // namespace lockstep
