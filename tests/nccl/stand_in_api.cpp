// A stand-in for NCCL: the functions of nccl/api.h by NCCL's names, over host memory, between processes (or
// threads) of one machine. It is opened with dlopen where libnccl.so.2 would be, and has
// lockstep_device_streams_1() beside that (stand_in_streams.h), whose streams are the only ones its functions
// take; with a null stream an operation is done when the call returns.
//
//   LOCKSTEP_NCCL=build/tests/nccl/liblockstep_nccl_stand_in.so    the environment of a program with backend
//                                                                  nccl
//   NCCL_DEBUG=INFO                                                its version and each communicator as lines
//                                                                  on stdout
//   NCCL_STAND_IN=fail:all_reduce:3:1                              what it is to do wrong (stand_in_orders.h)
//
// As NCCL: calls return at once and the streams do the work; with config.blocking == 0 a communicator is made
// in the background; a collective of count 0 is nothing, a message of count 0 is one; a communicator that is
// in progress takes no calls, one that is not blocking and has had an error returns it from then on and can
// only be aborted; an error within a group is the group's. As no NCCL: any call with a handle that has been
// destroyed or aborted is ncclInvalidArgument. What it has not: communicators that are made within a group,
// several streams in one group, more than 64 ranks. Threads: any, of one communicator one at a time, and
// ncclCommAbort at any time.
#include <cstdio>
#include <limits>
#include <thread>
#include <utility>

#include "lockstep/comm/backends/nccl/api.h"
#include "tests/nccl/stand_in_comm.h"
#include "tests/nccl/stand_in_device.h"
#include "tests/nccl/stand_in_operations.h"
#include "tests/nccl/stand_in_orders.h"
#include "tests/nccl/stand_in_streams.h"
#include "tests/nccl/stand_in_sums.h"

namespace lockstep::nccl::stand_in {
namespace {

struct Group {
  int depth = 0;
  Result error = SUCCESS;
  CudaStream stream = nullptr;
  std::vector<Operation> operations;
};
thread_local Group group_of_thread;

Result refused(Result result, const std::string& why) {
  note_for_process(why);
  return result;
}

// An error of a call with this communicator; it stays if the communicator is not blocking.
Result refused(Communicator& comm, Result result, const std::string& why) {
  if (comm.is_blocking()) {
    comm.note(why);
  } else {
    comm.set_state(result, why);
  }
  return result;
}

Result read_orders() {
  const std::string problem = OrderBook::of_process().read();
  if (problem.empty()) return SUCCESS;
  std::fprintf(stderr, "%s\n", problem.c_str());
  return refused(INVALID_USAGE, problem);
}

Result ready(Communicator& comm) {
  const Result state = comm.state();
  if (state != IN_PROGRESS) return state;
  comm.note("Attempt to use communicator before the previous operation returned ncclSuccess");
  return INVALID_ARGUMENT;
}

std::shared_ptr<Communicator> find(Comm handle) {
  auto comm = Communicator::find(handle);
  if (comm == nullptr) note_for_process("comm is null, or was destroyed or aborted");
  return comm;
}

// ---- launching

void start(const std::shared_ptr<Launch>& launch, const std::shared_ptr<Queue>& queue) {
  if (queue == nullptr) {
    launch->run();
  } else {
    queue->push([launch] { launch->run(); });
  }
}

Result launch(std::vector<Operation> operations, CudaStream stream) {
  static std::mutex order_of_launches;  // the same in all communicators and streams
  std::shared_ptr<Communicator> later;  // has the order `progress`
  for (const Operation& operation : operations) {
    if (operation.order.fault == Fault::PROGRESS && !operation.comm->is_blocking()) later = operation.comm;
  }
  std::unique_lock lock(order_of_launches);
  const std::shared_ptr<Queue> queue = Queue::find(stream);
  const auto launched = std::make_shared<Launch>(std::move(operations));
  if (later != nullptr) {
    later->postpone([launched, queue] { start(launched, queue); });
    return IN_PROGRESS;
  }
  if (queue == nullptr) lock.unlock();
  start(launched, queue);
  return SUCCESS;
}

bool needs_input(const Operation& operation) {
  const bool from_root = operation.verb == Verb::BROADCAST && operation.peer != operation.comm->rank();
  return operation.verb != Verb::RECV && !from_root;
}

bool needs_output(const Operation& operation) {
  const bool to_root = operation.verb == Verb::REDUCE && operation.peer != operation.comm->rank();
  return operation.verb != Verb::SEND && !to_root;
}

// "" or what is wrong with the arguments.
std::string problem_of(const Operation& operation, CudaStream stream) {
  if (element_size(operation.type) == 0) return "datatype " + std::to_string(operation.type) + " is none";
  if (operation.op < SUM || operation.op > AVG) return "op " + std::to_string(operation.op) + " is none";
  if (operation.peer < 0 || operation.peer >= operation.comm->size()) {
    return "rank " + std::to_string(operation.peer) + " is none of " + std::to_string(operation.comm->size());
  }
  if (operation.count > 0 && operation.input == nullptr && needs_input(operation)) return "sendbuff is null";
  if (operation.count > 0 && operation.output == nullptr && needs_output(operation))
    return "recvbuff is null";
  if (stream != nullptr && Queue::find(stream) == nullptr) return "stream is no stream of this library";
  return "";
}

Result submit_checked(Operation operation, CudaStream stream) {
  Communicator& comm = *operation.comm;
  if (const Result result = ready(comm); result != SUCCESS) return result;
  const std::string problem = problem_of(operation, stream);
  if (!problem.empty()) return refused(comm, INVALID_ARGUMENT, name_of(operation.verb) + ": " + problem);
  operation.order = OrderBook::of_process().next(operation.verb, comm.rank());
  if (operation.order.fault == Fault::FAIL) {
    return refused(
        comm, INTERNAL_ERROR,
        "stand-in: told to fail in " + name_of(operation.verb) + " " + std::to_string(operation.order.nth));
  }
  if (operation.count == 0 && !operation.is_point_to_point()) return SUCCESS;
  Group& group = group_of_thread;
  if (group.depth == 0) return launch({std::move(operation)}, stream);
  if (!group.operations.empty() && group.stream != stream) {
    return refused(comm, INVALID_USAGE, "stand-in: a group has one stream here");
  }
  group.stream = stream;
  group.operations.push_back(std::move(operation));
  return SUCCESS;
}

Result submit(Operation operation, Comm handle, CudaStream stream) {
  operation.comm = find(handle);
  const Result result =
      operation.comm == nullptr ? INVALID_ARGUMENT : submit_checked(std::move(operation), stream);
  if (group_of_thread.depth > 0 && result != SUCCESS) group_of_thread.error = result;
  return result;
}

Operation operation_of(Verb verb, const void* input, void* output, std::size_t count, DataType type, RedOp op,
                       int peer) {
  return {verb, memory_of(input), memory_of(output), count, type, op, peer};
}

// ---- communicators

// Whether the calls with this configuration block; NCCL's own marks are asked for.
Result read_config(const Config* config, bool* is_blocking) {
  *is_blocking = true;
  if (config == nullptr) return SUCCESS;
  if (config->magic != 0xcafebeef || config->size < sizeof(Config)) {
    return refused(INVALID_ARGUMENT, "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
  }
  constexpr int UNDEFINED = std::numeric_limits<int>::min();
  if (config->blocking != 0 && config->blocking != 1 && config->blocking != UNDEFINED) {
    return refused(INVALID_ARGUMENT, "config: blocking is " + std::to_string(config->blocking));
  }
  *is_blocking = config->blocking != 0;
  return SUCCESS;
}

Result init_rank(Comm* handle, int size, const UniqueId& id, int rank, const Config* config) {
  if (const Result result = read_orders(); result != SUCCESS) return result;
  log_version_once();
  if (handle == nullptr) return refused(INVALID_ARGUMENT, "comm is null");
  *handle = nullptr;
  if (size < 1 || size > MOST_RANKS || rank < 0 || rank >= size) {
    return refused(INVALID_ARGUMENT,
                   "invalid rank requested: " + std::to_string(rank) + " of " + std::to_string(size));
  }
  bool is_blocking = true;
  if (const Result result = read_config(config, &is_blocking); result != SUCCESS) return result;
  if (group_of_thread.depth > 0)
    return refused(INVALID_USAGE, "stand-in: communicators are not made within a group");
  const auto comm = Communicator::make(rank, size, is_blocking);
  *handle = comm->handle();
  if (!is_blocking) {
    std::thread([comm, id] { comm->meet(id); }).detach();
    return IN_PROGRESS;
  }
  const Result result = comm->meet(id);
  if (result != SUCCESS) {
    comm->release();
    *handle = nullptr;
  }
  return result;
}

Result ask(Comm handle, int* answer, int (*question)(Communicator&)) {
  const auto comm = find(handle);
  if (comm == nullptr || answer == nullptr) return INVALID_ARGUMENT;
  if (const Result result = ready(*comm); result != SUCCESS) return result;
  *answer = question(*comm);
  return SUCCESS;
}

Result end_group() {
  Group& group = group_of_thread;
  if (group.depth == 0) return refused(INVALID_USAGE, "ncclGroupEnd: not in a group call");
  if (--group.depth > 0) return SUCCESS;
  const Group ended = std::exchange(group, {});
  if (ended.error != SUCCESS || ended.operations.empty()) return ended.error;
  return launch(ended.operations, ended.stream);
}

}  // namespace

// The symbols. Their types are those of nccl/api.h: a definition that differs does not compile.
#define LOCKSTEP_DECLARE(member, symbol, parameters) using member = Result parameters;
struct Types {
  LOCKSTEP_NCCL_FUNCTIONS(LOCKSTEP_DECLARE)
};
#undef LOCKSTEP_DECLARE

extern "C" {
#pragma GCC visibility push(default)

Types::get_version ncclGetVersion;
Types::get_unique_id ncclGetUniqueId;
Types::comm_init_rank_config ncclCommInitRankConfig;
Types::comm_get_async_error ncclCommGetAsyncError;
Types::comm_count ncclCommCount;
Types::comm_user_rank ncclCommUserRank;
Types::comm_finalize ncclCommFinalize;
Types::comm_destroy ncclCommDestroy;
Types::comm_abort ncclCommAbort;
Types::group_start ncclGroupStart;
Types::group_end ncclGroupEnd;
Types::all_reduce ncclAllReduce;
Types::broadcast ncclBroadcast;
Types::reduce ncclReduce;
Types::all_gather ncclAllGather;
Types::reduce_scatter ncclReduceScatter;
Types::send ncclSend;
Types::recv ncclRecv;
const char* ncclGetErrorString(Result);
const char* ncclGetLastError(Comm);

Result ncclGetVersion(int* version) {
  if (const Result result = read_orders(); result != SUCCESS) return result;
  if (version == nullptr) return refused(INVALID_ARGUMENT, "version is null");
  *version = OrderBook::of_process().orders().version;
  return SUCCESS;
}

Result ncclGetUniqueId(UniqueId* id) {
  if (const Result result = read_orders(); result != SUCCESS) return result;
  log_version_once();
  return id == nullptr ? refused(INVALID_ARGUMENT, "uniqueId is null") : make_unique_id(id);
}

Result ncclCommInitRankConfig(Comm* comm, int size, UniqueId id, int rank, Config* config) {
  return init_rank(comm, size, id, rank, config);
}

Result ncclCommGetAsyncError(Comm handle, Result* error) {
  const auto comm = find(handle);
  if (comm == nullptr || error == nullptr) return INVALID_ARGUMENT;
  *error = comm->poll();
  return SUCCESS;
}

Result ncclCommCount(Comm comm, int* count) {
  return ask(comm, count,
             [](Communicator& of) { return OrderBook::of_process().orders().count.value_or(of.size()); });
}

Result ncclCommUserRank(Comm comm, int* rank) {
  return ask(comm, rank, [](Communicator& of) { return of.rank(); });
}

Result ncclCommFinalize(Comm handle) {
  const auto comm = find(handle);
  if (comm == nullptr) return INVALID_ARGUMENT;
  if (const Result result = ready(*comm); result != SUCCESS) return result;
  comm->finalize();
  return comm->poll();
}

Result ncclCommDestroy(Comm handle) {
  if (handle == nullptr) return SUCCESS;
  const auto comm = find(handle);
  if (comm == nullptr) return INVALID_ARGUMENT;
  if (const Result result = ready(*comm); result != SUCCESS) return result;
  comm->release();
  return SUCCESS;
}

Result ncclCommAbort(Comm handle) {
  if (handle == nullptr) return SUCCESS;
  const auto comm = find(handle);
  if (comm == nullptr) return INVALID_ARGUMENT;
  comm->abort();
  return SUCCESS;
}

Result ncclGroupStart() {
  ++group_of_thread.depth;
  return SUCCESS;
}

Result ncclGroupEnd() { return end_group(); }

Result ncclAllReduce(const void* input, void* output, std::size_t count, DataType type, RedOp op, Comm comm,
                     CudaStream stream) {
  return submit(operation_of(Verb::ALL_REDUCE, input, output, count, type, op, 0), comm, stream);
}

Result ncclBroadcast(const void* input, void* output, std::size_t count, DataType type, int root, Comm comm,
                     CudaStream stream) {
  return submit(operation_of(Verb::BROADCAST, input, output, count, type, SUM, root), comm, stream);
}

Result ncclReduce(const void* input, void* output, std::size_t count, DataType type, RedOp op, int root,
                  Comm comm, CudaStream stream) {
  return submit(operation_of(Verb::REDUCE, input, output, count, type, op, root), comm, stream);
}

Result ncclAllGather(const void* input, void* output, std::size_t count, DataType type, Comm comm,
                     CudaStream stream) {
  return submit(operation_of(Verb::ALL_GATHER, input, output, count, type, SUM, 0), comm, stream);
}

Result ncclReduceScatter(const void* input, void* output, std::size_t count, DataType type, RedOp op,
                         Comm comm, CudaStream stream) {
  return submit(operation_of(Verb::REDUCE_SCATTER, input, output, count, type, op, 0), comm, stream);
}

Result ncclSend(const void* data, std::size_t count, DataType type, int peer, Comm comm, CudaStream stream) {
  return submit(operation_of(Verb::SEND, data, nullptr, count, type, SUM, peer), comm, stream);
}

Result ncclRecv(void* data, std::size_t count, DataType type, int peer, Comm comm, CudaStream stream) {
  return submit(operation_of(Verb::RECV, nullptr, data, count, type, SUM, peer), comm, stream);
}

const char* ncclGetErrorString(Result result) {
  switch (result) {
    case SUCCESS: return "no error";
    case UNHANDLED_CUDA_ERROR: return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case SYSTEM_ERROR: return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case INTERNAL_ERROR: return "internal error - please report this issue to the NCCL developers";
    case INVALID_ARGUMENT: return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case INVALID_USAGE: return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case REMOTE_ERROR: return "remote process exited or there was a network error";
    case IN_PROGRESS: return "NCCL operation in progress";
  }
  return "unknown result code";
}

// Valid until the calling thread asks again. Of a communicator that is gone: the last error of the process.
const char* ncclGetLastError(Comm handle) {
  thread_local std::string text;
  const auto comm = Communicator::find(handle);
  text = comm == nullptr ? last_error_of_process() : comm->last_error();
  return text.c_str();
}

#pragma GCC visibility pop
}  // extern "C"

}  // namespace lockstep::nccl::stand_in
