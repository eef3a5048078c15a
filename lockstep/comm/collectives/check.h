// Argument checks that all verbs share. Every message names the verb, the group and this rank.
#pragma once

#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/visibility.h"
#include "lockstep/comm/collectives/peer.h"
#include "lockstep/comm/process_group.h"

namespace lockstep {
namespace LOCKSTEP_PUBLIC comm {

template <typename... Parts>
[[noreturn]] void refuse(std::string_view call, const ProcessGroup& group, const Parts&... reason) {
  throw InvalidArgument(str(call, " on group \"", group.name(), "\", rank ", group.rank(), " of ",
                            group.size(), ": ", reason...));
}
template <typename... Parts>
[[noreturn]] void refuse(Verb verb, const ProcessGroup& group, const Parts&... reason) {
  refuse(name_of(verb), group, reason...);
}

// Returns whether this process is in the group. In a process outside it, a call has no effect; the first such
// call of each verb logs a warning.
bool takes_part(std::string_view call, const ProcessGroup& group);
inline bool takes_part(Verb verb, const ProcessGroup& group) {
  return group.is_member() || takes_part(name_of(verb), group);
}

// Checks that a non-empty buffer is not null and is aligned to its element type, because the kernels read
// whole elements.
void check_buffer(Verb verb, const ProcessGroup& group, const void* data, std::size_t count, DType dtype);
// For SEND and RECV: checks that the peer is another rank (or ANY_SOURCE, for RECV) and that the tag is not
// negative. Returns the rank within the group.
int check_message(Verb verb, const ProcessGroup& group, Peer peer, int tag);
// Checks that the dtype has the operator.
void check_reduction(Verb verb, const ProcessGroup& group, DType dtype, ReduceOp op);

// Checks that there is one buffer per rank, each with a whole number of elements.
template <typename Byte>
void check_parts(Verb verb, const ProcessGroup& group, const std::vector<std::span<Byte>>& parts, DType dtype,
                 const char* role) {
  if (parts.size() != static_cast<std::size_t>(group.size())) {
    refuse(verb, group, "one ", role, " per rank is needed, ", group.size(), "; there are ", parts.size(),
           "; if you passed one buffer, it cannot be cut into parts of the right size");
  }
  for (std::size_t r = 0; r < parts.size(); ++r) {
    if (parts[r].size() % size_of(dtype) != 0)
      refuse(verb, group, "the ", role, " for rank ", r, " is not a whole number of ", name_of(dtype));
    check_buffer(verb, group, parts[r].data(), parts[r].size() / size_of(dtype), dtype);
  }
}
// Cuts a single buffer that has `part_bytes` for each rank into these parts. Returns false, without a change,
// for any other list.
template <typename Byte>
bool cut_whole(const ProcessGroup& group, std::vector<std::span<Byte>>& parts, std::size_t part_bytes) {
  const auto ranks = static_cast<std::size_t>(group.size());
  if (parts.size() != 1 || parts[0].size() != ranks * part_bytes) return false;
  const std::span<Byte> whole = parts[0];
  parts.clear();
  for (std::size_t r = 0; r < ranks; ++r) parts.push_back(whole.subspan(r * part_bytes, part_bytes));
  return true;
}
// Checks that the part that this rank gives to itself has the right size.
template <typename Byte>
void check_own_part(Verb verb, const ProcessGroup& group, const std::vector<std::span<Byte>>& parts,
                    std::size_t count, DType dtype) {
  const std::size_t own = parts[static_cast<std::size_t>(group.rank())].size() / size_of(dtype);
  if (own != count)
    refuse(verb, group, "the list's entry for this rank has ", own, " elements, the rank's own buffer has ",
           count);
}
// Checks the list that only the root has (gather, scatter): one buffer per rank on the root, none elsewhere.
// `does` is the end of the sentence "only the root ...".
template <typename Byte>
void check_root_parts(const ProcessGroup& group, const Request& request,
                      const std::vector<std::span<Byte>>& parts, const char* role, const char* does) {
  if (group.rank() == request.root) {
    check_parts(request.verb, group, parts, request.dtype, role);
    check_own_part(request.verb, group, parts, request.count, request.dtype);
  } else if (!parts.empty()) {
    refuse(request.verb, group, role, "s are given, but only the root, rank ", request.root, ", ", does);
  }
}

// Returns whether this process has made a collective call or a message among several ranks, other than a
// barrier, for the program itself or for gradients (purpose.h).
bool program_has_communicated();

// Starts the request, and waits for it unless async_op.
Work run(const ProcessGroup& group, Request&& request, bool async_op);

}  // namespace comm
}  // namespace lockstep
