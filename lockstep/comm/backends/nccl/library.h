// NCCL as a table of functions, and the device streams that belong to it. Nothing of NCCL or CUDA is needed
// to build Lockstep or in the process before open_library().
//
//   const nccl::Library& nccl = nccl::open_library();
//   nccl.check("ncclCommCount", nccl.api.comm_count(comm, &count), comm);
//
// Which       LOCKSTEP_NCCL (a path); else the one that is in this process already, because libtorch for CUDA
//             brought it; else libnccl.so.2 where the loader looks. Never two: two copies in one process do
//             not know of each other.
// Streams     of libtorch's device (tensor/cuda_streams.h offers them); a library that exports
//             lockstep_device_streams_1, a function that returns a DeviceStreams*, has its own, unless it
//             returns null. (That is how tests run on machines without a GPU: tests/nccl, tests/cuda.)
// Throws      InvalidArgument that says what to install or to set; DistBackendError in NCCL's own words.
// Threads     any.
#pragma once

#include <string>

#include "lockstep/base/visibility.h"
#include "lockstep/comm/backends/nccl/api.h"
#include "lockstep/comm/device_streams.h"

namespace lockstep {
namespace LOCKSTEP_PUBLIC nccl {

struct Api {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a name and a list of parameters
#define LOCKSTEP_NCCL_MEMBER(member, symbol, parameters) Result(*member) parameters = nullptr;
  LOCKSTEP_NCCL_FUNCTIONS(LOCKSTEP_NCCL_MEMBER)
#undef LOCKSTEP_NCCL_MEMBER
  const char* (*get_error_string)(Result) = nullptr;
  const char* (*get_last_error)(Comm) = nullptr;
};

struct Library {
  Api api;
  DeviceStreams* streams = nullptr;
  std::string path;
  int version = 0;  // 22105

  // "ncclAllReduce: internal error ...: the last error's text".
  std::string describe(const char* function, Result result, Comm comm) const;
};

std::string version_text(int version);  // "2.21.5"

// Opened once; the same for the rest of the process.
const Library& open_library();

// What open_library() would open, and nothing is initialised by it: "2.21.5 (/usr/lib/.../libnccl.so.2)", or
// why there is none.
std::string describe_library();

// The streams of libtorch's device, which the core does not know; set once, when the library with tensors is
// loaded.
void offer_streams(DeviceStreams* streams);

}  // namespace nccl
}  // namespace lockstep
