// The part of NCCL's C interface that Lockstep uses: the facts of nccl.h (2.14 and later). With it, neither
// building nor loading Lockstep needs NCCL or CUDA. The functions are looked up by name when the first group
// is made (nccl/library.h).
//
// This header stands alone: tests/nccl/ implements these functions over host memory.
#pragma once

#include <cstddef>

#include "lockstep/base/visibility.h"

namespace lockstep {
namespace LOCKSTEP_PUBLIC nccl {

struct CommHandle;
using Comm = CommHandle*;  // ncclComm_t
using CudaStream = void*;  // cudaStream_t

enum Result : int {
  SUCCESS = 0,
  UNHANDLED_CUDA_ERROR = 1,
  SYSTEM_ERROR = 2,
  INTERNAL_ERROR = 3,
  INVALID_ARGUMENT = 4,
  INVALID_USAGE = 5,
  REMOTE_ERROR = 6,
  IN_PROGRESS = 7,
};

enum DataType : int {
  INT8 = 0,
  UINT8 = 1,
  INT32 = 2,
  UINT32 = 3,
  INT64 = 4,
  UINT64 = 5,
  FLOAT16 = 6,
  FLOAT32 = 7,
  FLOAT64 = 8,
  BFLOAT16 = 9,
};

enum RedOp : int { SUM = 0, PROD = 1, MAX = 2, MIN = 3, AVG = 4 };

struct UniqueId {
  char internal[128];  // NOLINT: the layout is NCCL's
};

// ncclConfig_t of 2.14. Later versions accept it by its size and version, and add their defaults.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;
};

// X(member, "symbol", parameters). Each function returns a Result unless the table says otherwise.
#define LOCKSTEP_NCCL_FUNCTIONS(X)                                                                     \
  X(get_version, "ncclGetVersion", (int* version))                                                     \
  X(get_unique_id, "ncclGetUniqueId", (UniqueId * id))                                                 \
  X(comm_init_rank_config, "ncclCommInitRankConfig",                                                   \
    (Comm * comm, int size, UniqueId id, int rank, Config* config))                                    \
  X(comm_get_async_error, "ncclCommGetAsyncError", (Comm comm, Result * error))                        \
  X(comm_count, "ncclCommCount", (Comm comm, int* count))                                              \
  X(comm_user_rank, "ncclCommUserRank", (Comm comm, int* rank))                                        \
  X(comm_finalize, "ncclCommFinalize", (Comm comm))                                                    \
  X(comm_destroy, "ncclCommDestroy", (Comm comm))                                                      \
  X(comm_abort, "ncclCommAbort", (Comm comm))                                                          \
  X(group_start, "ncclGroupStart", ())                                                                 \
  X(group_end, "ncclGroupEnd", ())                                                                     \
  X(all_reduce, "ncclAllReduce",                                                                       \
    (const void* input, void* output, std::size_t count, DataType type, RedOp op, Comm comm,           \
     CudaStream stream))                                                                               \
  X(broadcast, "ncclBroadcast",                                                                        \
    (const void* input, void* output, std::size_t count, DataType type, int root, Comm comm,           \
     CudaStream stream))                                                                               \
  X(reduce, "ncclReduce",                                                                              \
    (const void* input, void* output, std::size_t count, DataType type, RedOp op, int root, Comm comm, \
     CudaStream stream))                                                                               \
  X(all_gather, "ncclAllGather",                                                                       \
    (const void* input, void* output, std::size_t count, DataType type, Comm comm, CudaStream stream)) \
  X(reduce_scatter, "ncclReduceScatter",                                                               \
    (const void* input, void* output, std::size_t count, DataType type, RedOp op, Comm comm,           \
     CudaStream stream))                                                                               \
  X(send, "ncclSend",                                                                                  \
    (const void* data, std::size_t count, DataType type, int peer, Comm comm, CudaStream stream))      \
  X(recv, "ncclRecv", (void* data, std::size_t count, DataType type, int peer, Comm comm, CudaStream stream))

// Two more return text: ncclGetErrorString(Result), ncclGetLastError(Comm).

}  // namespace nccl
}  // namespace lockstep
