#include "lockstep/compat/c10d/backend.h"

#include <ATen/record_function.h>
#include <c10/core/impl/PyObjectSlot.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/monitored_barrier.h"
#include "lockstep/compat/c10d/ended_tensors.h"
#include "lockstep/compat/c10d/failure.h"
#include "lockstep/compat/c10d/open_backends.h"
#include "lockstep/compat/c10d/profile_titles.h"
#include "lockstep/job/groups.h"
#include "lockstep/tensor/collectives.h"
#include "lockstep/tensor/point_to_point.h"
#include "lockstep/tensor/tensor_call.h"

namespace lockstep::compat::torch_backend {

using c10d::OpType;
using std::chrono::milliseconds;
using TorchWork = GroupBackend::TorchWork;

// `first` is one of the call's tensors: who made it decides about callbacks (wait_for_callbacks).
struct GroupBackend::Start {
  OpType type;
  const char* verb;
  bool async_op = true;
  milliseconds timeout = c10d::kUnsetTimeout;
  const at::Tensor* first = nullptr;  // and `count - 1` more behind it
  std::size_t count = 1;
};

namespace {

GroupRank rank_in_group(std::int64_t rank) { return {static_cast<int>(rank)}; }
lockstep::ReduceOp operator_of(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM: return ReduceOp::SUM;
    case c10d::ReduceOp::AVG: return ReduceOp::AVG;
    case c10d::ReduceOp::PRODUCT: return ReduceOp::PRODUCT;
    case c10d::ReduceOp::MIN: return ReduceOp::MIN;
    case c10d::ReduceOp::MAX: return ReduceOp::MAX;
    case c10d::ReduceOp::BAND: return ReduceOp::BAND;
    case c10d::ReduceOp::BOR: return ReduceOp::BOR;
    case c10d::ReduceOp::BXOR: return ReduceOp::BXOR;
    case c10d::ReduceOp::PREMUL_SUM:
    case c10d::ReduceOp::UNUSED: break;
  }
  throw InvalidArgument("backend lockstep has no ReduceOp.PREMUL_SUM; multiply the tensor, then use SUM");
}

// A list that c10d passes for several devices of a process has one entry here.
template <typename T> T& only(std::vector<T>& list, const char* verb) {
  if (list.size() == 1) return list[0];
  throw InvalidArgument(str(verb, ": one tensor for each rank is needed, and the list has ", list.size()));
}

// The list of gather and scatter, which the root alone passes.
GroupBackend::Tensors of_root(const GroupBackend::TensorLists& lists) {
  return lists.empty() ? GroupBackend::Tensors() : lists[0];
}

bool is_known_to_python(const at::Tensor* tensor) {
  return tensor != nullptr && tensor->defined() &&
         tensor->unsafeGetTensorImpl()->pyobj_slot()->load_pyobj() != nullptr;
}

void require_equal_lengths(std::size_t outputs, std::size_t inputs, const char* verb) {
  if (outputs != inputs)
    throw InvalidArgument(str(verb, ": there are ", outputs, " outputs and ", inputs, " inputs"));
}

}  // namespace

GroupBackend::GroupBackend(ProcessGroup group, std::string name, milliseconds timeout)
    : c10d::Backend(group.rank(), group.size()),
      group_(std::move(group)),
      name_(std::move(name)),
      usual_timeout_(timeout),
      timeout_(timeout),
      blocks_(std::make_shared<SharedBlocks>(group_)),
      completion_(std::make_shared<Completion>()) {
  init();
  list_open(this);
}

// A program that drops its groups leaves them. The core's destructors do not.
GroupBackend::~GroupBackend() {
  unlist_open(this);
  group_.close();
}

c10::intrusive_ptr<c10d::Backend::Options> GroupBackend::getBackendOptions() {
  auto options = c10::make_intrusive<Options>(name_, timeout_.load());
  for (const int rank : group_.ranks()) options->global_ranks_in_group.push_back(rank);
  return options;
}

c10::intrusive_ptr<c10d::Backend> GroupBackend::split(const c10::intrusive_ptr<c10d::Store>& /*store*/,
                                                      const std::vector<int>& ranks,
                                                      const c10::intrusive_ptr<Options>& opts) {
  const milliseconds timeout = opts ? opts->timeout : timeout_.load();
  const std::string name = opts && !opts->group_name.empty() ? opts->group_name : group_.name() + "/split";
  try {
    std::vector<int> global;
    for (const int rank : ranks) global.push_back(group_.ranks().at(static_cast<std::size_t>(rank)));
    auto made = group_.backend().split_over(ranks, name, {.timeout = timeout});
    return c10::make_intrusive<GroupBackend>(ProcessGroup(std::move(made), std::move(global)), name_,
                                             timeout);
  } catch (...) {
    throw_as_torch(timeout);
  }
}

// DDP's hooks are called during backward, bucket by bucket, in the same order on all ranks. The callbacks of
// their futures run on the completion thread, at any time. If a callback makes calls itself, they would come
// before the next bucket on one rank and behind it on another.
void GroupBackend::wait_for_callbacks(const Start& verb) {
  const bool is_message =
      verb.type == OpType::SEND || verb.type == OpType::RECV || verb.type == OpType::RECVANYSOURCE;
  if (!is_message && torch::autograd::get_current_graph_task_id() != -1 && is_known_to_python(verb.first))
    completion_->drain();
}

TorchWork GroupBackend::made(const Start& verb, GroupWork::CoreWorks works, bool is_done) {
  GroupCall call;
  call.type = verb.type;
  call.sequence = sequence_;
  if (verb.timeout > milliseconds::zero()) {
    call.timeout = verb.timeout;
  } else if (timeout_.load() != usual_timeout_) {
    call.timeout = timeout_;
  }
  call.usual = call.timeout > milliseconds::zero() ? call.timeout : usual_timeout_;
  std::optional<Tensors> shown;
  if (at::hasCallbacks()) {
    call.title = profile_title(name_, verb.verb);
    if (verb.first != nullptr) shown = Tensors(verb.first, verb.first + verb.count);
  }
  auto work = c10::make_intrusive<GroupWork>(group_, call, std::move(works), completion_, shown);
  if (is_done) work->finish_now();
  return work;
}

// `call(async_op)` makes the call and returns its works. A call that waits with the group's own timeout takes
// the core's shorter way.
template <typename Call> TorchWork GroupBackend::start(const Start& verb, Call&& call) {
  drop_ended_tensors();
  wait_for_callbacks(verb);
  ++sequence_;
  const bool waits = !verb.async_op && verb.timeout <= milliseconds::zero() &&
                     timeout_.load() == usual_timeout_ && !coalesced_;
  try {
    GroupWork::CoreWorks works = call(!waits);
    if (coalesced_) coalesced_->insert(coalesced_->end(), works.begin(), works.end());
    return made(verb, std::move(works), waits);
  } catch (...) {
    drop_ended_tensors();
    throw_as_torch(usual_timeout_);
  }
}

TorchWork GroupBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  const Start verb = {OpType::BROADCAST, "broadcast", opts.asyncOp, opts.timeout, tensors.data()};
  return start(verb, [&](bool async_op) -> GroupWork::CoreWorks {
    return {lockstep::broadcast(only(tensors, "broadcast"), rank_in_group(opts.rootRank), group_, async_op)};
  });
}

TorchWork GroupBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  const Start verb = {OpType::ALLREDUCE, "all_reduce", opts.asyncOp, opts.timeout, tensors.data()};
  return start(verb, [&](bool async_op) -> GroupWork::CoreWorks {
    at::Tensor& tensor = only(tensors, "all_reduce");
    blocks_->adopt(tensor);
    return {lockstep::all_reduce(tensor, operator_of(opts.reduceOp), group_, async_op)};
  });
}

TorchWork GroupBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  return allreduce(tensors, opts);
}

TorchWork GroupBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  const Start verb = {
      OpType::ALLREDUCE_COALESCED, "all_reduce", opts.asyncOp, opts.timeout, tensors.data(), tensors.size()};
  return start(verb, [&](bool async_op) -> GroupWork::CoreWorks {
    return {lockstep::all_reduce_coalesced(tensors, operator_of(opts.reduceOp), group_, async_op)};
  });
}

TorchWork GroupBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  const Start verb = {OpType::REDUCE, "reduce", opts.asyncOp, opts.timeout, tensors.data()};
  return start(verb, [&](bool async_op) -> GroupWork::CoreWorks {
    return {lockstep::reduce(only(tensors, "reduce"), rank_in_group(opts.rootRank),
                             operator_of(opts.reduceOp), group_, async_op)};
  });
}

TorchWork GroupBackend::allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  const Start verb = {OpType::ALLGATHER, "all_gather", opts.asyncOp, opts.timeout, inputs.data()};
  return start(verb, [&](bool async_op) -> GroupWork::CoreWorks {
    return {lockstep::all_gather(only(outputs, "all_gather"), only(inputs, "all_gather"), group_, async_op)};
  });
}

TorchWork GroupBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                        const c10d::AllgatherOptions& opts) {
  const Start verb = {OpType::_ALLGATHER_BASE, "all_gather", opts.asyncOp, opts.timeout, &input};
  return start(verb, [&](bool async_op) -> GroupWork::CoreWorks {
    return {lockstep::all_gather_into_tensor(output, input, group_, async_op)};
  });
}

// outputs[r][i] gets rank r's inputs[i].
TorchWork GroupBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                            const c10d::AllgatherOptions& opts) {
  const Start verb = {
      OpType::ALLGATHER_COALESCED, "all_gather", opts.asyncOp, opts.timeout, inputs.data(), inputs.size()};
  return start(verb, [&](bool async_op) {
    GroupWork::CoreWorks works;
    for (const Tensors& of_rank : outputs)
      require_equal_lengths(of_rank.size(), inputs.size(), "all_gather_coalesced");
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      Tensors of_input;
      for (const Tensors& of_rank : outputs) of_input.push_back(of_rank[i]);
      works.push_back(lockstep::all_gather(of_input, inputs[i], group_, async_op));
    }
    return works;
  });
}

TorchWork GroupBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                        const c10d::AllgatherOptions& opts) {
  const Start verb = {
      OpType::ALLGATHER_COALESCED, "all_gather", opts.asyncOp, opts.timeout, inputs.data(), inputs.size()};
  return start(verb, [&](bool async_op) {
    GroupWork::CoreWorks works;
    require_equal_lengths(outputs.size(), inputs.size(), "all_gather_into_tensor_coalesced");
    for (std::size_t i = 0; i < inputs.size(); ++i)
      works.push_back(lockstep::all_gather_into_tensor(outputs[i], inputs[i], group_, async_op));
    return works;
  });
}

TorchWork GroupBackend::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) {
  const Start verb = {OpType::GATHER, "gather", opts.asyncOp, opts.timeout, inputs.data()};
  return start(verb, [&](bool async_op) -> GroupWork::CoreWorks {
    return {lockstep::gather(only(inputs, "gather"), of_root(outputs), rank_in_group(opts.rootRank), group_,
                             async_op)};
  });
}

TorchWork GroupBackend::scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) {
  const Start verb = {OpType::SCATTER, "scatter", opts.asyncOp, opts.timeout, outputs.data()};
  return start(verb, [&](bool async_op) -> GroupWork::CoreWorks {
    return {lockstep::scatter(only(outputs, "scatter"), of_root(inputs), rank_in_group(opts.rootRank), group_,
                              async_op)};
  });
}

TorchWork GroupBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                       const c10d::ReduceScatterOptions& opts) {
  const Start verb = {OpType::REDUCE_SCATTER, "reduce_scatter", opts.asyncOp, opts.timeout, outputs.data()};
  return start(verb, [&](bool async_op) -> GroupWork::CoreWorks {
    return {lockstep::reduce_scatter(only(outputs, "reduce_scatter"), only(inputs, "reduce_scatter"),
                                     operator_of(opts.reduceOp), group_, async_op)};
  });
}

TorchWork GroupBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                             const c10d::ReduceScatterOptions& opts) {
  const Start verb = {OpType::_REDUCE_SCATTER_BASE, "reduce_scatter", opts.asyncOp, opts.timeout, &input};
  return start(verb, [&](bool async_op) -> GroupWork::CoreWorks {
    return {lockstep::reduce_scatter_tensor(output, input, operator_of(opts.reduceOp), group_, async_op)};
  });
}

TorchWork GroupBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                        const c10d::ReduceScatterOptions& opts) {
  const Start verb = {OpType::REDUCE_SCATTER_TENSOR_COALESCED,
                      "reduce_scatter",
                      opts.asyncOp,
                      opts.timeout,
                      inputs.data(),
                      inputs.size()};
  return start(verb, [&](bool async_op) {
    GroupWork::CoreWorks works;
    require_equal_lengths(outputs.size(), inputs.size(), "reduce_scatter_tensor_coalesced");
    for (std::size_t i = 0; i < inputs.size(); ++i)
      works.push_back(lockstep::reduce_scatter_tensor(outputs[i], inputs[i], operator_of(opts.reduceOp),
                                                      group_, async_op));
    return works;
  });
}

TorchWork GroupBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                      std::vector<std::int64_t>& output_splits,
                                      std::vector<std::int64_t>& input_splits,
                                      const c10d::AllToAllOptions& opts) {
  const Start verb = {OpType::ALLTOALL_BASE, "all_to_all", opts.asyncOp, opts.timeout, &input};
  return start(verb, [&](bool async_op) -> GroupWork::CoreWorks {
    return {lockstep::all_to_all_single(output, input, output_splits, input_splits, group_, async_op)};
  });
}

TorchWork GroupBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) {
  const Start verb = {OpType::ALLTOALL, "all_to_all", opts.asyncOp, opts.timeout, inputs.data()};
  return start(verb, [&](bool async_op) -> GroupWork::CoreWorks {
    return {lockstep::all_to_all(outputs, inputs, group_, async_op)};
  });
}

TorchWork GroupBackend::send(Tensors& tensors, int destination, int tag) {
  return start({OpType::SEND, "send", true, c10d::kUnsetTimeout, tensors.data()},
               [&](bool /*async_op*/) -> GroupWork::CoreWorks {
                 return {lockstep::isend(only(tensors, "send"), rank_in_group(destination), group_, tag)};
               });
}

TorchWork GroupBackend::recv(Tensors& tensors, int source, int tag) {
  return start({OpType::RECV, "recv", true, c10d::kUnsetTimeout, tensors.data()},
               [&](bool /*async_op*/) -> GroupWork::CoreWorks {
                 return {lockstep::irecv(only(tensors, "recv"), rank_in_group(source), group_, tag)};
               });
}

TorchWork GroupBackend::recvAnysource(Tensors& tensors, int tag) {
  return start({OpType::RECVANYSOURCE, "recvAnySource", true, c10d::kUnsetTimeout, tensors.data()},
               [&](bool /*async_op*/) -> GroupWork::CoreWorks {
                 return {lockstep::irecv(only(tensors, "recv"), std::nullopt, group_, tag)};
               });
}

TorchWork GroupBackend::barrier(const c10d::BarrierOptions& opts) {
  const Start verb = {OpType::BARRIER, "barrier", opts.asyncOp, opts.timeout};
  return start(verb,
               [&](bool async_op) -> GroupWork::CoreWorks { return {lockstep::barrier(group_, async_op)}; });
}

// torch's programs know the outcome by these three sentences, which are Gloo's.
void GroupBackend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  const milliseconds timeout = opts.timeout == c10d::kUnsetTimeout ? timeout_.load() : opts.timeout;
  const std::string here = str("Rank ", rank_);
  try {
    comm::monitored_barrier(group_, std::max(timeout, milliseconds(1)), wait_all_ranks);
  } catch (const comm::RanksMissing& missing) {
    if (timeout == milliseconds::zero()) {
      throw_dist_backend_error(
          str("[", here, "]: ", here, " timed out in monitoredBarrier after 0 ms: ", missing.what()));
    }
    std::string late = missing.ranks().size() == 1 ? "Rank " : "Ranks ";
    for (const int rank : missing.ranks()) late += str(rank == missing.ranks().front() ? "" : ", ", rank);
    throw_dist_backend_error(str("[", here, "]: ", late, " failed to pass monitoredBarrier in ",
                                 timeout.count(), " ms: ", missing.what()));
  } catch (const InvalidArgument&) {
    throw;
  } catch (const Error& error) {
    if (rank_ == 0) throw_as_torch(timeout);
    throw_dist_backend_error(str(here,
                                 " successfully reached monitoredBarrier, but received errors while waiting ",
                                 "for send/recv from rank 0: ", error.what()));
  }
}

void GroupBackend::startCoalescing() { coalesced_.emplace(); }

TorchWork GroupBackend::endCoalescing() {
  GroupWork::CoreWorks works = std::exchange(coalesced_, std::nullopt).value_or(GroupWork::CoreWorks());
  return made({OpType::COALESCED, "coalesced"}, std::move(works), /*is_done=*/false);
}

// c10d passes -1 for the CPU.
bool GroupBackend::supportsTensorAlloc(c10::DeviceIndex index) { return index <= 0 && blocks_->are_shared(); }

at::Tensor GroupBackend::allocateTensor(long size, at::TensorOptions options) {
  try {
    return blocks_->empty(size, options);
  } catch (...) {
    throw_as_torch(usual_timeout_);
  }
}

void GroupBackend::abort() {
  error_ = c10d::ErrorType::COMM_ERROR;
  group_.abort("torch.distributed aborted the group");
}

// Of a job that lockstep:// joined, the default group is the world.
void GroupBackend::leave() { destroy_process_group(group_); }

void GroupBackend::shutdown() {
  forget_default_backend(this);
  leave();
}

}  // namespace lockstep::compat::torch_backend
