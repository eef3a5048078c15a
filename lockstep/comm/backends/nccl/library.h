// NCCL as a table of functions, and the device streams that go with it. Before open_library(), neither
// building Lockstep nor the process needs NCCL or CUDA.
//
//   const nccl::Library& nccl = nccl::open_library();
//   nccl.check("ncclCommCount", nccl.api.comm_count(comm, &count), comm);
//
// Which       LOCKSTEP_NCCL (a path) decides. Without it, the NCCL that is already in the process, because
//             libtorch for CUDA brought it. Without that, libnccl.so.2 where the loader looks. Never two,
//             because two copies in one process do not know of each other.
// Streams     are those of libtorch's device (tensor/cuda_streams.h offers them). A library may have streams
//             of its own: it then exports lockstep_device_streams_1, a function that returns a DeviceStreams*
//             that is not null. (Tests on machines without a GPU use this: tests/nccl, tests/cuda.)
// Throws      InvalidArgument that says what to install or to set; DistBackendError that quotes NCCL's error.
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

// Opens the library once; returns the same for the rest of the process.
const Library& open_library();

// Names the library that open_library() would open, without initialising anything: "2.21.5
// (/usr/lib/.../libnccl.so.2)", or the reason why there is none.
std::string describe_library();

// Sets the streams of libtorch's device, which the core does not know. Called once, when the library with
// tensors is loaded.
void offer_streams(DeviceStreams* streams);

}  // namespace nccl
}  // namespace lockstep
