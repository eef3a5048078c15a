// FileMemory: memory whose contents lie in a file without a name, so that there can be more of it than the
// machine has memory. The kernel reads a page when it is touched, and may write it back and drop it at any
// time. Who goes through it in order says so: then reading and writing happen beside the work.
//
//   FileMemory memory("/nvme/scratch");
//   auto* data = static_cast<float*>(memory.allocate(bytes));       // zeros
//   memory.will_need({range(0)});              // reading begins; returns at once
//   for (int i = 0; i < n; ++i) {
//     if (i + 1 < n) memory.will_need({range(i + 1)});
//     work_on(range(i));
//     memory.is_done({range(i)});              // writing begins; range(i - 1) leaves the memory
//   }
//
// Memory   while somebody goes through it in this way, at most two of his ranges and the one that is read
//          ahead are in memory.
// Disk     allocate() reserves space, so a full disk is an error there and never later. The file goes with
//          the process, however that ends.
// Threads  one at a time, but for the memory itself.
// Fails    SystemError naming the folder: it is missing or not writable, the disk is full, the file would
//          be larger than `ulimit -f` permits, a page could not be written back. A disk that cannot read a
//          page ends the process by SIGBUS, as it does for every mapped file.
// Limits   a folder in tmpfs holds its files in memory, so nothing is gained there.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <vector>

#include "lockstep/base/visibility.h"
#include "lockstep/os/fd.h"

namespace LOCKSTEP_PUBLIC lockstep {

struct MemoryRange {
  const void* data = nullptr;
  std::size_t bytes = 0;
};

class FileMemory {
 public:
  explicit FileMemory(std::string folder) : folder_(std::move(folder)) {}
  FileMemory(const FileMemory&) = delete;
  FileMemory& operator=(const FileMemory&) = delete;
  ~FileMemory();

  // Aligned to a cache line; zeros. It stays until this object goes.
  void* allocate(std::size_t bytes);
  // Parts of ranges that are not of this memory are passed over.
  void will_need(const std::vector<MemoryRange>& ranges);
  void is_done(const std::vector<MemoryRange>& ranges);
  std::size_t bytes() const;  // on the disk

 private:
  struct Block {  // a file and its mapping
    Fd file;
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    std::size_t used = 0;
  };
  struct Pages {  // of a block
    const Block* block = nullptr;
    std::size_t begin = 0;
    std::size_t bytes = 0;
  };
  void add_block(std::size_t bytes);
  std::vector<Pages> pages_of(const std::vector<MemoryRange>& ranges) const;
  void write_back(const Pages& pages, unsigned how) const;

  const std::string folder_;
  std::deque<Block> blocks_;
  std::vector<Pages> leaving_;  // are written to the disk
};

}  // namespace lockstep
