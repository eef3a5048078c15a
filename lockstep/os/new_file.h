// NewFile: creates a file, which must not exist, and writes it from beginning to end.
//
//   NewFile file("/runs/7/.unfinished/shard-00000-of-00002.safetensors");
//   file.write(header);
//   file.write(data);
//   file.sync();                            // it is on the disk when this returns
//
// The file follows the umask, like files of any program. With Access::PRIVATE only its user may read it
// (0600).
//
// Fails       SystemError that names the path: it exists, the folder is missing or not writable, the disk or
//             the quota is full, a limit of file sizes is reached (never the signal SIGXFSZ).
// Destructor  closes the file and does not remove it.
// Threads     one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "lockstep/base/visibility.h"
#include "lockstep/os/fd.h"

namespace LOCKSTEP_PUBLIC lockstep {

class NewFile {
 public:
  enum class Access { AS_UMASK, PRIVATE };

  // `called` is the path that errors name. The default is `path`.
  explicit NewFile(std::string path, Access access = Access::AS_UMASK, std::string called = {});

  void write(std::span<const std::byte> bytes);
  // Asks the kernel to start writing to the disk; returns at once.
  void begin_sync() noexcept;
  void sync();

  std::uint64_t size() const { return size_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::string called_;
  Fd file_;
  std::uint64_t size_ = 0;
  std::uint64_t syncing_ = 0;  // bytes whose writing has begun
};

}  // namespace lockstep
