// MappedFile: a file of any size as bytes in memory. The kernel reads pages when they are touched, and shares
// them with other processes that map the same file.
//
//   const MappedFile file("tokens.bin");
//   const auto first = file.bytes()[0];
//   file.check_size();                      // from time to time, see Shrinking
//
// Shrinking   if another program truncates the file, an access beyond its new end ends this process (SIGBUS).
//             So call check_size() before each larger read: it is one system call and throws instead.
//             Programs that replace a file by renaming a new one over it, as AtomicFile does, cause no harm.
// Fails       SystemError: the file is missing, not a regular file, unreadable, or has become shorter.
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

  // Throws SystemError if the file is shorter now than when it was mapped.
  void check_size() const;

 private:
  std::string path_;
  Fd file_;
  std::span<const std::byte> bytes_;
};

}  // namespace lockstep
