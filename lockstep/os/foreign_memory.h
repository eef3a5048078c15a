// ForeignMemory: reads memory files (memfd) of other processes without their help. Those processes may be
// stopped, hang, or be dead while another process still holds the file.
//
//   for (Fd& file : open_memory_files(4121, "lockstep-trace")) {
//     const ForeignMemory memory(std::move(file));
//     parse(memory.bytes());
//   }
//
// Read-only. The caller needs the rights to read /proc/PID/fd: the same user, and a process that may be
// dumped. Files without these rights are left out.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/os/fd.h"

namespace lockstep {

// Returns the memory files named `name` that process `pid` has open for writing, each once. These are files
// that it made or received, not files that it only reads.
std::vector<Fd> open_memory_files(pid_t pid, std::string_view name);

// A read-only mapping of a memory file. Throws SystemError if the file cannot be mapped, or if it could
// shrink while it is read.
class ForeignMemory {
 public:
  explicit ForeignMemory(int fd);  // the caller may close `fd` afterwards
  ForeignMemory(const ForeignMemory&) = delete;
  ForeignMemory& operator=(const ForeignMemory&) = delete;
  ~ForeignMemory();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace lockstep
