// ReservedMemory: address space whose pages come and go. A pointer into it stays what it is, whether there is
// memory behind it or not.
//
//   ReservedMemory memory(bytes);            // no page is there
//   memory.admit(0, 8192);                   // two pages, of zeros
//   memory.discard(4096, 8192);              // one of them goes, with what it held
//
// Or over memory that other processes map, too. Each of them says which pages it may touch, and one discards
// a page for all:
//
//   ReservedMemory memory(common, bytes);    // no page may be touched
//   memory.admit(0, 4096);                   // what others have written, or zeros
//   memory.hide(0, 4096);                    // others may touch it still
//   memory.replace(0, 4096);                 // a page of this process alone, whatever others write
//
// A page that is not there costs nothing. Whoever touches it gets SIGSEGV, never zeros.
// Threads  of different pages: any. Fails: std::bad_alloc where the kernel has no address space or memory.
#pragma once

#include <cstddef>
#include <memory>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

class ReservedMemory {
 public:
  static constexpr std::size_t PAGE = 4096;

  explicit ReservedMemory(std::size_t bytes);
  // `common` has a page more, because it may begin within one. After replace() it is never given back.
  ReservedMemory(std::shared_ptr<void> common, std::size_t bytes);
  ReservedMemory(const ReservedMemory&) = delete;
  ReservedMemory& operator=(const ReservedMemory&) = delete;
  ~ReservedMemory();

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }  // whole pages
  // From byte `begin` up to `end`, both multiples of PAGE.
  void admit(std::size_t begin, std::size_t end);
  void hide(std::size_t begin, std::size_t end);
  void discard(std::size_t begin, std::size_t end);
  void replace(std::size_t begin, std::size_t end);  // of common memory; the new pages are zeros, admitted

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::shared_ptr<void> common_;  // null: it is this object's own
  bool is_replaced_ = false;
};

}  // namespace lockstep
