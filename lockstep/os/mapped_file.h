// MappedFile: a file of any size as bytes in memory, read by the kernel as they are looked at and shared with
// other processes that map the same file.
//
//   const MappedFile file("tokens.bin");
//   const auto first = file.bytes()[0];
//   file.check_size();                      // from time to time, see below
//
// Shrinking   a look behind the end of a file that somebody has cut since ends the process (SIGBUS).
//             check_size() before each larger piece of reading makes an error of it: one system call of less
//             than a microsecond. Programs that replace files by renaming a new one over them, as AtomicFile
//             does, do no harm.
// Fails       SystemError: the file is missing, not a plain one, unreadable, cut short since.
// Threads     any number may read.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "lockstep/base/visibility.h"
#include "lockstep/os/fd.h"

namespace LOCKSTEP_PUBLIC lockstep {

class MappedFile {
 public:
  explicit MappedFile(std::string path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }
  const std::string& path() const { return path_; }

  // Throws SystemError when the file is now shorter than it was when it was mapped.
  void check_size() const;

 private:
  std::string path_;
  Fd file_;
  std::span<const std::byte> bytes_;
};

}  // namespace lockstep
