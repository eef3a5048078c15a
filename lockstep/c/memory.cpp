#include "lockstep/c/memory.h"

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "lockstep/c/boundary.h"
#include "lockstep/c/group_table.h"
#include "lockstep/comm/collectives/common_memory.h"

using lockstep::c::find_group;
using lockstep::c::guarded;
using lockstep::c::required;

namespace {

// What holds each piece of memory that the program has not freed. By address, which is its handle. Ranks that
// are threads of one process may hold the same common memory.
class Pieces {
 public:
  void add(std::shared_ptr<void> piece) {
    const std::lock_guard lock(mutex_);
    void* const address = piece.get();
    pieces_.emplace(address, std::move(piece));
  }
  void free(void* address) {
    std::shared_ptr<void> piece;  // let go without the lock
    const std::lock_guard lock(mutex_);
    const auto found = pieces_.find(address);
    if (found == pieces_.end()) {
      throw lockstep::c::Failure(LOCKSTEP_ERROR_INVALID_HANDLE,
                                 address == nullptr ? "memory is NULL"
                                                    : "memory was freed, or is no address that "
                                                      "lockstep_allocate_shared() or _common() gave");
    }
    piece = std::move(found->second);
    pieces_.erase(found);
  }

 private:
  std::mutex mutex_;
  std::multimap<void*, std::shared_ptr<void>> pieces_;  // guarded by mutex_
};

Pieces& pieces() {
  static auto& all = *new Pieces;
  return all;
}

// Nothing is larger than half of the address space.
void check_size(size_t bytes) {
  if (bytes > static_cast<size_t>(PTRDIFF_MAX)) {
    throw lockstep::c::Failure(LOCKSTEP_ERROR_OUT_OF_MEMORY,
                               lockstep::str(bytes, " bytes are more than any memory has"));
  }
}

}  // namespace

int lockstep_allocate_shared(lockstep_group group, size_t bytes, void** memory) {
  return guarded("lockstep_allocate_shared", [&] {
    required(memory, "memory") = nullptr;
    check_size(bytes);
    std::shared_ptr<void> piece = find_group(group).allocate_shared(bytes);
    void* const address = piece.get();
    pieces().add(std::move(piece));
    *memory = address;
  });
}

int lockstep_allocate_common(lockstep_group group, size_t bytes, void** memory) {
  return guarded("lockstep_allocate_common", [&] {
    required(memory, "memory") = nullptr;
    check_size(bytes);
    std::shared_ptr<void> piece = lockstep::comm::allocate_common(find_group(group), bytes);
    if (piece == nullptr) return;
    void* const address = piece.get();
    pieces().add(std::move(piece));
    *memory = address;
  });
}

int lockstep_free_shared(void* memory) {
  return guarded("lockstep_free_shared", [&] { pieces().free(memory); });
}
