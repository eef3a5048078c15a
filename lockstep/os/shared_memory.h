// SharedMemory: memory without a name that several processes map. No file appears in /dev/shm, and the memory
// does not outlive the last process.
//
//   auto memory = SharedMemory::create(1 << 30);       // address space only
//   memory->reserve(0, 1 << 20);  // allocates the first MiB; throws if there is not enough
//   send_message(socket, "take this", {memory->fd()});
//   auto same = SharedMemory::adopt(std::move(received_fd));
//
// A memfd, sealed against shrinking and growing, so that no process can turn another's access into a SIGBUS.
// Only reserve() allocates pages, so a write during training cannot run out of memory. From 4 MiB on it
// allocates huge pages if the kernel can (Linux 6.1). Not inherited by fork (MADV_DONTFORK), not part of core
// dumps.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/visibility.h"
#include "lockstep/os/fd.h"

namespace LOCKSTEP_PUBLIC lockstep {

class SharedMemory {
 public:
  struct Options {
    const char* name = "lockstep";  // shown in /proc/PID/fd and /proc/PID/maps
    bool huge_pages = true;         // allowed, if the kernel has huge pages for shared memory
    // Where memfds are forbidden: memory of this process alone, without fd().
    bool need_not_be_shared = false;
  };
  static std::shared_ptr<SharedMemory> create(std::size_t bytes);
  static std::shared_ptr<SharedMemory> create(std::size_t bytes, const Options& options);
  // Maps memory that another process created. Throws SystemError if `fd` is not a memfd with the seals of
  // create(). (With LOCKSTEP_DISABLE=seals no seals are required.) Closes `fd`, so that a rank can map the
  // memory of hundreds of others with few open files.
  static std::shared_ptr<SharedMemory> adopt(Fd fd);

  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  int fd() const { return fd_.get(); }  // -1 for memory that another process created

  // Allocates the pages of [offset, offset + bytes), which read as zero at first. Throws SystemError if there
  // is not enough memory. Only for the process that created the memory.
  void reserve(std::size_t offset, std::size_t bytes);

 private:
  SharedMemory(Fd fd, std::byte* data, std::size_t size, bool huge_pages)
      : fd_(std::move(fd)), data_(data), size_(size), huge_pages_(huge_pages) {}
  static std::shared_ptr<SharedMemory> map(Fd fd, std::size_t size, bool huge_pages);

  Fd fd_;
  std::byte* data_;
  std::size_t size_;
  bool huge_pages_;
};

// The addresses at which this process maps memory files of that name, from any creator. Empty without /proc.
std::vector<const std::byte*> mapped_memory_files(const std::string& name);

std::size_t physical_memory();

inline constexpr std::size_t NO_LIMIT = std::numeric_limits<std::size_t>::max();
std::size_t address_space_limit();  // of this process (RLIMIT_AS, `ulimit -v`)
// Bytes that this process may still map, by that limit and by the size of its addresses.
std::size_t address_space_left();

}  // namespace lockstep
