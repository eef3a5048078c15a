// The buffers of a C program as the lists of spans that the verbs of C++ take.
//
//   comm::all_gather(group, input, count, dtype, {whole_buffer(group, output, count, dtype, "output")});
//
// All throw Failure with INVALID_ARGUMENT: `role` is NULL though it has elements, or its size cannot be.
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "lockstep/base/dtype.h"
#include "lockstep/c/boundary.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::c {

// The bytes of a list of parts with `counts` elements each.
std::size_t bytes_in_all(std::span<const std::size_t> counts, DType dtype, const char* role);

// The span of `bytes` bytes that begin at a pointer; const or not as the pointer is.
inline std::span<const std::byte> span_at(const void* memory, std::size_t bytes, const char* role) {
  if (bytes == 0) return {};
  return {&required(static_cast<const std::byte*>(memory), role), bytes};
}
inline std::span<std::byte> span_at(void* memory, std::size_t bytes, const char* role) {
  if (bytes == 0) return {};
  return {&required(static_cast<std::byte*>(memory), role), bytes};
}

// One part behind the other: counts[r] elements for rank r.
template <typename Void>
auto parts_of(Void* memory, std::span<const std::size_t> counts, DType dtype, const char* role) {
  auto rest = span_at(memory, bytes_in_all(counts, dtype, role), role);
  std::vector<decltype(rest)> parts;
  for (const std::size_t count : counts) {
    const std::size_t bytes = count * size_of(dtype);
    parts.push_back(rest.first(bytes));
    rest = rest.subspan(bytes);
  }
  return parts;
}

// As many parts as the group has ranks, all of `count` elements.
template <typename Void>
auto even_parts_of(const ProcessGroup& group, Void* memory, std::size_t count, DType dtype,
                   const char* role) {
  const std::vector<std::size_t> counts(static_cast<std::size_t>(group.size()), count);
  return parts_of(memory, counts, dtype, role);
}

// The same as one buffer that the verb cuts.
template <typename Void>
auto whole_buffer(const ProcessGroup& group, Void* memory, std::size_t count, DType dtype, const char* role) {
  const auto ranks = static_cast<std::size_t>(group.size());
  if (ranks > 0 && count > std::numeric_limits<std::size_t>::max() / 2 / size_of(dtype) / ranks)
    throw Failure(LOCKSTEP_ERROR_INVALID_ARGUMENT, str(count, " elements for each rank are too many"));
  auto whole = span_at(memory, ranks * count * size_of(dtype), role);
  return std::vector{whole};
}

// A program's list of one number of elements per rank.
inline std::span<const std::size_t> counts_given(const ProcessGroup& group, const std::size_t* counts,
                                                 const char* name) {
  return {&required(counts, name), static_cast<std::size_t>(group.size())};
}

// The number of elements of this rank; 0 in a process outside the group.
inline std::size_t own_count(const ProcessGroup& group, std::span<const std::size_t> counts) {
  return group.is_member() ? counts[static_cast<std::size_t>(group.rank())] : 0;
}

inline bool is_root(const ProcessGroup& group, int root) {
  return group.is_member() && group.ranks()[static_cast<std::size_t>(group.rank())] == root;
}

}  // namespace lockstep::c
