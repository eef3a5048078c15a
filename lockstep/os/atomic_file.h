// AtomicFile: writes a file that appears whole or not at all. A reader that opens the path finds the old file
// or the new one, also after a crash or a power cut.
//
//   AtomicFile file("model.safetensors");
//   file.write(header);
//   file.write(data);
//   file.commit();                          // without it "model.safetensors" does not change
//
// The bytes go to a temporary file in the same folder (".model.safetensors.PID-N.tmp"). commit() syncs that
// file to the disk, renames it over the path and syncs the folder. The destructor removes the file if it was
// not committed. A symbolic link at the path is replaced, not followed.
//
// Access      models and results are shared between users, so they get the usual access: 0666 less the umask.
//             Files that may hold a program's private data (Access::PRIVATE) are 0600 whatever the umask.
// Fails       SystemError naming the path: the folder is missing or not writable, or the disk is full. The
//             old file is then untouched.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "lockstep/base/visibility.h"
#include "lockstep/os/new_file.h"

namespace LOCKSTEP_PUBLIC lockstep {

class AtomicFile {
 public:
  using Access = NewFile::Access;

  explicit AtomicFile(std::string path, Access access = Access::AS_UMASK);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void commit(bool durable = true);  // false: no sync. Readers see a whole file, but a power cut may lose it

 private:
  std::string path_;
  std::string temporary_;  // empty once committed
  std::optional<NewFile> file_;
};

}  // namespace lockstep
