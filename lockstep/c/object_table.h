// The lists of byte strings behind the handles of the C interface.
//
//   const lockstep_objects handle = objects().add(byte_strings({"a", "b"}));
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/c/handle_table.h"

namespace lockstep::c {

using ByteStrings = std::shared_ptr<const std::vector<std::string>>;

inline ByteStrings byte_strings(std::vector<std::string> strings) {
  return std::make_shared<const std::vector<std::string>>(std::move(strings));
}

HandleTable<ByteStrings>& objects();

// The bytes of a program's argument.
std::string bytes_given(const void* bytes, std::size_t size);

}  // namespace lockstep::c
