#include "lockstep/c/object_table.h"

namespace lockstep::c {

HandleTable<ByteStrings>& objects() {
  static auto& table = *new HandleTable<ByteStrings>(HandleKind::OBJECTS);
  return table;
}

std::string bytes_given(const void* bytes, std::size_t size) {
  if (size == 0) return {};
  return {&required(static_cast<const char*>(bytes), "bytes"), size};
}

}  // namespace lockstep::c
