// Folders that only this user can enter (0700), whatever the umask: a new one for files, and one per user for
// sockets.
//
//   PrivateFolder run = PrivateFolder::create("runs", "20261120-1a2b3c4d");
//   Fd log = run.create_file("rank0.log");                                      // 0600
//   Fd listener = listen_at(user_private_folder() + "/job");                    // os/unix_socket.h
//
// Files are created through the folder's descriptor and must not exist yet (O_EXCL, O_NOFOLLOW): nobody can
// redirect them.
#pragma once

#include <string>

#include "lockstep/os/fd.h"

namespace lockstep {

// Makes the folder and those above it that are missing (0700); one that is there stays as it is. Fails:
// SystemError.
void make_private_folders(const std::string& path);

class PrivateFolder {
 public:
  // Makes `base` if needed (0700) and in it `name`, which must not exist. Fails: SystemError.
  static PrivateFolder create(const std::string& base, const std::string& name);

  const std::string& path() const { return path_; }  // absolute
  Fd create_file(const std::string& name) const;     // opened for appending. Fails: SystemError

 private:
  PrivateFolder(Fd folder, std::string path) : folder_(std::move(folder)), path_(std::move(path)) {}

  Fd folder_;
  std::string path_;
};

// The folder in which processes of this user meet: $XDG_RUNTIME_DIR/lockstep, or /tmp/lockstep-UID where that
// variable is unset or names a folder that is missing, read-only, another user's or too long for sockets
// (after su or sudo, under Slurm, in containers). Created if missing. Fails: SystemError when the one in /tmp
// is a link, or somebody else's, or open to others.
std::string user_private_folder();

// Processes that find the same one there say the same: on one machine, in one mount namespace. Never fails:
// "none" if there is no such folder.
std::string user_private_folder_id();

}  // namespace lockstep
