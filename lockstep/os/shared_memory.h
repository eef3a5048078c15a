// Memory that several processes map, without a name: nothing appears in /dev/shm and nothing outlives the
// last process.
//
//   auto memory = SharedMemory::create(1 << 30);       // address space only
//   memory->reserve(0, 1 << 20);  // now the first MiB is real; throws when there is not enough
//   send_message(socket, "take this", {memory->fd()});
//   auto same = SharedMemory::adopt(std::move(received_fd));
//
// A memfd, sealed against shrinking and growing, so that no peer can turn an access into a SIGBUS. Pages are
// allocated by reserve(), never by a stray write during training, in huge pages from 4 MiB on if the kernel
// can (Linux 6.1). Not inherited by fork (MADV_DONTFORK), not part of core dumps.
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
    bool huge_pages = true;         // may be used, where the kernel has any for this
    bool need_not_be_shared =
        false;  // where memfds are forbidden: memory of this process alone, without fd()
  };
  static std::shared_ptr<SharedMemory> create(std::size_t bytes);
  static std::shared_ptr<SharedMemory> create(std::size_t bytes, const Options& options);
  // Maps memory created by another process. Throws SystemError when `fd` is not a memfd with the seals of
  // create() (sealing can be missing where the kernel has none: LOCKSTEP_DISABLE=seals). `fd` is closed: a
  // rank maps the memory of hundreds of others without having as many files open.
  static std::shared_ptr<SharedMemory> adopt(Fd fd);

  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  int fd() const { return fd_.get(); }  // -1 for what another process made

  // Allocates the pages of [offset, offset + bytes); they read as zero at first. Throws SystemError (not
  // enough memory). For the process that made it.
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

// Where this process maps memory files of that name, whoever made them. Empty where there is no /proc.
std::vector<const std::byte*> mapped_memory_files(const std::string& name);

std::size_t physical_memory();

inline constexpr std::size_t NO_LIMIT = std::numeric_limits<std::size_t>::max();
std::size_t address_space_limit();  // of a process (RLIMIT_AS, `ulimit -v`)
std::size_t address_space_left();  // that this process may still map, by that limit and by what its addresses
                                   // can tell apart

}  // namespace lockstep
