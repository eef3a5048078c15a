// Argument checks that all verbs share; every message names the verb, the group and this rank.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::comm {

template <typename... Parts>
[[noreturn]] void refuse(Verb verb, const ProcessGroup& group, const Parts&... reason) {
  throw InvalidArgument(str(name_of(verb), " on group \"", group.name(), "\", rank ", group.rank(), " of ",
                            group.size(), ": ", reason...));
}

// Whether this process is in the group. If not, its call does nothing; the first such call of a verb logs a warning.
bool takes_part(Verb verb, const ProcessGroup& group);

// Buffers of more than no elements exist and are aligned to their element type (the kernels read whole elements).
void check_buffer(Verb verb, const ProcessGroup& group, const void* data, std::size_t count, DType dtype);
void check_rank(Verb verb, const ProcessGroup& group, int rank, const char* role);
// There is such an operator for the dtype.
void check_reduction(Verb verb, const ProcessGroup& group, DType dtype, ReduceOp op);

// One buffer per rank, each a whole number of elements.
template <typename Byte>
void check_parts(Verb verb, const ProcessGroup& group, const std::vector<std::span<Byte>>& parts, DType dtype,
                 const char* role) {
  if (parts.size() != static_cast<std::size_t>(group.size())) {
    refuse(verb, group, "one ", role, " per rank is needed, ", group.size(), "; there are ", parts.size(),
           " (none also when one buffer cannot be cut into as many parts of the right size)");
  }
  for (std::size_t r = 0; r < parts.size(); ++r) {
    if (parts[r].size() % size_of(dtype) != 0)
      refuse(verb, group, "the ", role, " for rank ", r, " is not a whole number of ", name_of(dtype));
    check_buffer(verb, group, parts[r].data(), parts[r].size() / size_of(dtype), dtype);
  }
}
// What a rank gives to itself fits.
template <typename Byte>
void check_own_part(Verb verb, const ProcessGroup& group, const std::vector<std::span<Byte>>& parts,
                    std::size_t count, DType dtype) {
  const std::size_t own = parts[static_cast<std::size_t>(group.rank())].size() / size_of(dtype);
  if (own != count)
    refuse(verb, group, "the list's entry for this rank has ", own, " elements, the rank's own buffer has ",
           count);
}

// Starts the request; waits for it unless async_op.
Work run(const ProcessGroup& group, Request request, bool async_op);

}  // namespace lockstep::comm
