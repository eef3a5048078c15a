// Argument checks that all verbs share; every message names the verb, the group and this rank.
#pragma once

#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::comm {

template <typename... Parts>
[[noreturn]] void refuse(Verb verb, const ProcessGroup& group, const Parts&... reason) {
  throw InvalidArgument(str(name_of(verb), " on group \"", group.name(), "\", rank ", group.rank(), " of ",
                            group.size(), ": ", reason...));
}

// Buffers of more than no elements exist and are aligned to their element type (the kernels read whole elements).
void check_buffer(Verb verb, const ProcessGroup& group, const void* data, std::size_t count, DType dtype);
void check_rank(Verb verb, const ProcessGroup& group, int rank, const char* role);

// Starts the request; waits for it unless async_op.
Work run(const ProcessGroup& group, Request request, bool async_op);

}  // namespace lockstep::comm
