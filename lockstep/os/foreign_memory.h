// Looks at memory files (memfd) that other processes hold, without their help: they may be stopped, hang, or
// be dead while somebody else still holds the file.
//
//   for (Fd& file : open_memory_files(4121, "lockstep-trace")) {
//     const ForeignMemory memory(std::move(file));
//     parse(memory.bytes());
//   }
//
// Read-only. Needs what the kernel wants of somebody who looks at /proc/PID/fd: the same user, and a process
// that may be dumped. What may not be looked at is left out.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/os/fd.h"

namespace lockstep {

// The memory files named `name` that process `pid` has open for writing, each once: its own and those it was
// given, not those it only looks at.
std::vector<Fd> open_memory_files(pid_t pid, std::string_view name);

// A read-only mapping of a memory file. Throws SystemError when it cannot be mapped, or could shrink under
// the reader.
class ForeignMemory {
 public:
  explicit ForeignMemory(int fd);  // may be closed afterwards
  ForeignMemory(const ForeignMemory&) = delete;
  ForeignMemory& operator=(const ForeignMemory&) = delete;
  ~ForeignMemory();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace lockstep
