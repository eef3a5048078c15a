// Arena: hands out blocks of one rank's shared memory. Only the owner allocates; peers reach a block by (rank, offset).
//
//   Arena arena(memory);
//   const std::size_t offset = arena.allocate(bytes);
//   ... peers read and write arena.at(offset) through their own mapping ...
//   arena.free(offset);
//
// First fit over free blocks ordered by address, neighbours merged. Pages are reserved when a block first covers them and
// kept, so that a training loop allocates memory once. Blocks are aligned to 128 bytes (two cache lines: no false sharing).
// Threads: the caller locks.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <unordered_map>

#include "lockstep/os/shared_memory.h"

namespace lockstep {

class Arena {
 public:
  explicit Arena(std::shared_ptr<SharedMemory> memory);

  // Throws SystemError when memory or address space runs out. allocate(0) is valid.
  std::size_t allocate(std::size_t bytes);
  void free(std::size_t offset);

  std::byte* at(std::size_t offset) const { return memory_->data() + offset; }
  bool contains(const void* address, std::size_t bytes) const;
  std::size_t offset_of(const void* address) const;
  std::size_t reserved_bytes() const { return reserved_; }

 private:
  void add_free(std::size_t offset, std::size_t bytes);

  std::shared_ptr<SharedMemory> memory_;
  std::map<std::size_t, std::size_t> free_;                 // offset -> bytes
  std::unordered_map<std::size_t, std::size_t> allocated_;  // offset -> bytes
  std::size_t reserved_ = 0;                                // pages exist below this offset
};

}  // namespace lockstep
