// FileMemory: memory whose contents lie in a nameless file, so that it may be larger than the machine's
// memory. The kernel reads a page when it is touched, and may write it back and drop it at any time. A caller
// that walks through it in order announces its ranges: then reading and writing overlap with the computation.
//
//   FileMemory memory("/nvme/scratch");
//   auto* data = static_cast<float*>(memory.allocate(bytes));       // zeros
//   memory.will_need({range(0)});              // starts to read; returns at once
//   for (int i = 0; i < n; ++i) {
//     if (i + 1 < n) memory.will_need({range(i + 1)});
//     work_on(range(i));
//     memory.is_done({range(i)});              // starts to write; range(i - 1) leaves the memory
//   }
//
// Memory   for a caller that announces its ranges like this, at most two ranges in use and the one that is
//          read ahead are in memory.
// Disk     allocate() reserves the space, so a full disk is an error there and never later. The file
//          disappears with the process, however that ends.
// Threads  one at a time for the calls; the memory itself may be used by any.
// Fails    SystemError that names the folder: it is missing or not writable, the disk is full, the file would
//          exceed `ulimit -f`, a page could not be written back. If the disk cannot read a page, the process
//          ends with SIGBUS, as for every mapped file.
// Limits   a folder in tmpfs keeps its files in memory, so it saves none.
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

  // Aligned to a cache line, filled with zeros. It lives as long as this object.
  void* allocate(std::size_t bytes);
  // A range that does not begin in this memory is ignored.
  void will_need(const std::vector<MemoryRange>& ranges);
  void is_done(const std::vector<MemoryRange>& ranges);
  std::size_t bytes() const;  // reserved on the disk

 private:
  struct Block {  // a file and its mapping
    Fd file;
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    std::size_t used = 0;
  };
  struct Pages {  // a page-aligned part of a block
    const Block* block = nullptr;
    std::size_t begin = 0;
    std::size_t bytes = 0;
  };
  void add_block(std::size_t bytes);
  std::vector<Pages> pages_of(const std::vector<MemoryRange>& ranges) const;
  void write_back(const Pages& pages, unsigned how) const;

  const std::string folder_;
  std::deque<Block> blocks_;
  std::vector<Pages> leaving_;  // ranges whose writing has begun
};

}  // namespace lockstep
