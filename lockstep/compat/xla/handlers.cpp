// The verbs of a group as handlers of XLA's foreign function interface, which Python registers by their names
// (python/lockstep/jax). Attributes: group, a handle of the C interface; op and root as there. Arguments
// beyond the results are values after which the call comes. A call blocks the thread of XLA that makes it.
#include <array>
#include <cstring>
#include <exception>
#include <vector>

#include "lockstep/c/collectives.h"
#include "lockstep/c/error.h"
#include "lockstep/c/group.h"
#include "lockstep/compat/xla/ffi.h"

namespace lockstep::compat::xla {
namespace {

struct Type {
  int xla;
  int dtype;
  std::size_t bytes;
};

constexpr std::array TYPES{
    Type{1, LOCKSTEP_BOOL, 1},       Type{2, LOCKSTEP_INT8, 1},      Type{3, LOCKSTEP_INT16, 2},
    Type{4, LOCKSTEP_INT32, 4},      Type{S64, LOCKSTEP_INT64, 8},   Type{6, LOCKSTEP_UINT8, 1},
    Type{7, LOCKSTEP_UINT16, 2},     Type{8, LOCKSTEP_UINT32, 4},    Type{9, LOCKSTEP_UINT64, 8},
    Type{10, LOCKSTEP_FLOAT16, 2},   Type{11, LOCKSTEP_FLOAT32, 4},  Type{12, LOCKSTEP_FLOAT64, 8},
    Type{15, LOCKSTEP_COMPLEX64, 8}, Type{16, LOCKSTEP_BFLOAT16, 2}, Type{18, LOCKSTEP_COMPLEX128, 16}};

const Type& type_of(const Buffer& buffer) {
  for (const Type& one : TYPES) {
    if (one.xla == buffer.dtype) return one;
  }
  throw Failure{INVALID_ARGUMENT, "there are no collectives of XLA's type " + std::to_string(buffer.dtype)};
}

std::size_t count_of(const Buffer& buffer) {
  std::size_t count = 1;
  for (std::int64_t i = 0; i < buffer.rank; ++i) count *= static_cast<std::size_t>(buffer.dims[i]);
  return count;
}

void check(int code) {
  if (code != LOCKSTEP_OK) throw Failure{status_code_of(code), lockstep_error_text()};
}

int op_of(const CallFrame& frame) { return static_cast<int>(number(frame, "op")); }

// XLA gives the result the memory of the argument where it can.
void copy_in(const CallFrame& frame, std::int64_t index) {
  const Buffer& from = argument(frame, index);
  const Buffer& to = result(frame, index);
  const std::size_t bytes = count_of(to) * type_of(to).bytes;
  if (bytes > 0 && from.data != to.data) std::memcpy(to.data, from.data, bytes);
}

void all_reduce(const CallFrame& frame) {
  std::vector<void*> places;
  std::vector<std::size_t> counts;
  for (std::int64_t i = 0; i < frame.rets.size; ++i) {
    copy_in(frame, i);
    places.push_back(result(frame, i).data);
    counts.push_back(count_of(result(frame, i)));
  }
  const lockstep_group group = number(frame, "group");
  const int dtype = type_of(result(frame, 0)).dtype;
  if (places.size() == 1) {
    check(lockstep_all_reduce(group, places[0], counts[0], dtype, op_of(frame), nullptr));
  } else {
    check(lockstep_all_reduce_coalesced(group, places.data(), counts.data(), places.size(), dtype,
                                        op_of(frame), nullptr));
  }
}

void broadcast(const CallFrame& frame) {
  copy_in(frame, 0);
  const Buffer& data = result(frame, 0);
  const int root = static_cast<int>(number(frame, "root"));
  check(lockstep_broadcast(number(frame, "group"), data.data, count_of(data), type_of(data).dtype, root,
                           nullptr));
}

void all_gather(const CallFrame& frame) {
  const Buffer& input = argument(frame, 0);
  check(lockstep_all_gather(number(frame, "group"), input.data, result(frame, 0).data, count_of(input),
                            type_of(input).dtype, nullptr));
}

void reduce_scatter(const CallFrame& frame) {
  const Buffer& output = result(frame, 0);
  check(lockstep_reduce_scatter(number(frame, "group"), argument(frame, 0).data, output.data,
                                count_of(output), type_of(output).dtype, op_of(frame), nullptr));
}

void all_to_all(const CallFrame& frame) {
  const Buffer& input = argument(frame, 0);
  int size = 1;
  check(lockstep_size(number(frame, "group"), &size));
  check(lockstep_all_to_all(number(frame, "group"), input.data, result(frame, 0).data,
                            count_of(input) / static_cast<std::size_t>(size), type_of(input).dtype, nullptr));
}

XlaError* handle(CallFrame* frame, void (*verb)(const CallFrame&)) noexcept {
  if (answer_metadata(*frame)) return nullptr;
  try {
    if (frame->stage == EXECUTE) verb(*frame);
    return nullptr;
  } catch (const Failure& failure) {
    return error_of(*frame, failure);
  } catch (const std::exception& error) {
    return error_of(*frame, Failure{INTERNAL, error.what()});
  }
}

}  // namespace
}  // namespace lockstep::compat::xla

#define LOCKSTEP_XLA_HANDLER(verb)                                                                \
  extern "C" __attribute__((visibility("default")))                                               \
  lockstep::compat::xla::XlaError* lockstep_xla_##verb(lockstep::compat::xla::CallFrame* frame) { \
    return lockstep::compat::xla::handle(frame, lockstep::compat::xla::verb);                     \
  }
LOCKSTEP_XLA_HANDLER(all_reduce)
LOCKSTEP_XLA_HANDLER(broadcast)
LOCKSTEP_XLA_HANDLER(all_gather)
LOCKSTEP_XLA_HANDLER(reduce_scatter)
LOCKSTEP_XLA_HANDLER(all_to_all)
