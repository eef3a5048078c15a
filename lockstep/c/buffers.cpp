#include "lockstep/c/buffers.h"

namespace lockstep::c {

std::size_t bytes_in_all(std::span<const std::size_t> counts, DType dtype, const char* role) {
  const std::size_t most = std::numeric_limits<std::size_t>::max() / 2 / size_of(dtype);
  std::size_t elements = 0;
  for (const std::size_t count : counts) {
    if (count > most - elements)
      throw Failure(LOCKSTEP_ERROR_INVALID_ARGUMENT, str(role, " has too many elements"));
    elements += count;
  }
  return elements * size_of(dtype);
}

}  // namespace lockstep::c
