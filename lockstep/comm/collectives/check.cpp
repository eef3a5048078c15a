#include "lockstep/comm/collectives/check.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <mutex>
#include <set>
#include <string>

#include "lockstep/base/log.h"
#include "lockstep/comm/call.h"
#include "lockstep/comm/kernels/reduce_kernels.h"

namespace lockstep::comm {

bool takes_part(std::string_view call, const ProcessGroup& group) {
  if (group.is_member()) return true;
  static std::mutex mutex;
  static auto* const warned = new std::set<std::string, std::less<>>;
  const std::lock_guard lock(mutex);
  if (warned->emplace(call).second) {
    log(LogLevel::WARNING,
        str(call, ": this process is not in the group it was called on; the call does nothing"));
  }
  return false;
}

void check_buffer(Verb verb, const ProcessGroup& group, const void* data, std::size_t count, DType dtype) {
  const std::size_t element = size_of(dtype);
  if (count > std::numeric_limits<std::size_t>::max() / 2 / element)
    refuse(verb, group, count, " elements are too many");
  if (count > 0 && data == nullptr) refuse(verb, group, "the buffer of ", count, " elements is null");
  const std::size_t alignment = is_complex(dtype) ? element / 2 : element;
  if (count > 0 && reinterpret_cast<std::uintptr_t>(data) % alignment != 0) {
    refuse(verb, group, "the buffer must be aligned to ", alignment, " bytes, the alignment of ",
           name_of(dtype));
  }
}

int check_message(Verb verb, const ProcessGroup& group, Peer peer, int tag) {
  const bool is_any = verb == Verb::RECV && peer.is_any();
  if (is_any && group.size() == 1)
    refuse(verb, group, "there is no other rank that a message could come from");
  const int rank =
      is_any ? ANY_SOURCE : peer.in(group, name_of(verb), verb == Verb::SEND ? "destination" : "source");
  if (rank == group.rank()) refuse(verb, group, "the peer is this rank itself");
  if (tag < 0) refuse(verb, group, "tag ", tag, " is negative");
  return rank;
}

void check_reduction(Verb verb, const ProcessGroup& group, DType dtype, ReduceOp op) {
  if (can_reduce(dtype, op)) return;
  refuse(verb, group, "there is no ", name_of(op), " of ", name_of(dtype),
         op == ReduceOp::AVG ? "; reduce with sum and divide" : "");
}

namespace {
std::atomic<bool> has_communicated = false;
}

bool program_has_communicated() { return has_communicated.load(std::memory_order_relaxed); }

Work run(const ProcessGroup& group, Request&& request, bool async_op) {
  request.async_op = async_op;
  request.device = group.device();
  request.acting = Acting::current();
  if (has_mark(request.verb)) request.root = request.acting.mark;
  const Purpose purpose = request.acting.purpose;
  const bool counts = purpose == Purpose::PROGRAM || purpose == Purpose::GRADIENTS ||
                      purpose == Purpose::SHARDED_STEP || is_of_model_parallelism(purpose);
  if (counts && request.verb != Verb::BARRIER && group.size() > 1)
    has_communicated.store(true, std::memory_order_relaxed);
  if (request.device != DeviceType::CPU && !group.backend().serves(request.device))
    refuse(request.verb, group, "backend \"", group.backend_name(),
           "\" serves CPU memory only; make the group with init_process_group(\"nccl\"), or copy the tensor "
           "to the CPU");
  Work work(group.backend().start(std::move(request)));
  if (!async_op) work.wait();
  return work;
}

}  // namespace lockstep::comm
