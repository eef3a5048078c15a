// LockedFile: a regular file whose readers and writers exclude each other: threads, processes and, if the
// file system supports locks, machines.
//
//   LockedFile file("/shared/job-17/store");          // created with mode 0600 if missing; a symbolic link
//                                                     // is refused
//   const LockedFile::Guard guard = file.lock();      // waits for other holders
//   std::string bytes = file.read(limit);
//   file.write_at(bytes.size(), "more");
//
// Throws SystemError that names the file. It uses open file description locks, which exclude other
// descriptors even of this process, and a mutex, which excludes threads that share the descriptor.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <utility>

#include "lockstep/base/visibility.h"
#include "lockstep/os/fd.h"

namespace LOCKSTEP_PUBLIC lockstep {

class LockedFile {
 public:
  class Guard {
   public:
    Guard(std::unique_lock<std::mutex> threads, int fd) : threads_(std::move(threads)), fd_(fd) {}
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    ~Guard();

   private:
    std::unique_lock<std::mutex> threads_;  // released after the file's lock
    int fd_;
  };

  explicit LockedFile(const std::string& path);

  const std::string& path() const { return path_; }
  Guard lock() const;
  // The whole file; SystemError (EFBIG) if it is larger than `limit` bytes.
  std::string read(std::size_t limit) const;
  // Truncates the file at `offset` and writes `bytes` there.
  void write_at(std::size_t offset, const std::string& bytes) const;

 private:
  std::string path_;
  Fd file_;
  mutable std::mutex mutex_;
};

}  // namespace lockstep
