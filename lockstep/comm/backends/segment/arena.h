// Arena: hands out blocks of one rank's shared memory. Only the owner allocates; peers reach a block by
// (rank, offset).
//
//   Arena arena(memory);
//   const std::size_t offset = arena.allocate(bytes);
//   ... peers read and write arena.at(offset) through their own mapping ...
//   arena.free(offset);
//
// First fit over free blocks ordered by address, neighbours merged. Pages are reserved when a block first
// covers them. They are kept, so that a training loop reserves memory once. Blocks are aligned to 128 bytes
// (two cache lines: no false sharing). All groups of a rank use one arena, from any thread. The arena has a
// lock of its own, which is taken after every other lock.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "lockstep/os/shared_memory.h"

namespace lockstep {

class Arena {
 public:
  // `bound` names the limit that set the size of the memory (segment_plan.h). The error that the memory runs
  // out quotes it.
  explicit Arena(std::shared_ptr<SharedMemory> memory, std::string bound = {});

  // Throws SystemError when memory or address space runs out. allocate(0) is valid.
  std::size_t allocate(std::size_t bytes);
  void free(std::size_t offset);
  // The block that `offset` lies in is never handed out again, also not after free(): a peer may still write
  // to it.
  void condemn(std::size_t offset);

  std::byte* at(std::size_t offset) const { return memory_->data() + offset; }
  bool contains(const void* address, std::size_t bytes) const;
  std::size_t offset_of(const void* address) const;
  std::size_t reserved_bytes() const;
  std::size_t allocated_blocks() const;

 private:
  struct Block {
    std::size_t bytes;
    bool condemned = false;
  };
  void add_free(std::size_t offset, std::size_t bytes);

  const std::shared_ptr<SharedMemory> memory_;
  const std::string bound_;
  mutable std::mutex mutex_;
  // guarded by mutex_
  std::map<std::size_t, std::size_t> free_;  // offset -> bytes
  std::map<std::size_t, Block> allocated_;   // by offset
  std::size_t reserved_ = 0;                 // pages exist below this offset
};

}  // namespace lockstep
