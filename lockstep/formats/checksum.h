// Checksum: the XXH3 hash of 128 bits of a sequence of bytes, as 32 hexadecimal digits. It finds damage on
// disks and in transfers. It does not protect against deliberate forgery.
//
//   Checksum checksum;
//   checksum.add(header);
//   checksum.add(data);
//   checksum.text();                       // what `xxh128sum FILE` prints for the same bytes
//
// Source      xxHash by Yann Collet, its specification XXH3; about as fast as memory can be read.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(Checksum&&) noexcept;
  Checksum& operator=(Checksum&&) noexcept;

  void add(std::span<const std::byte> bytes);
  std::string text() const;  // the hash of all bytes added so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string checksum_of(std::span<const std::byte> bytes);
std::string checksum_of(std::string_view text);
// Whether `text` has the form of a checksum.
bool is_checksum(const std::string& text);

}  // namespace lockstep
