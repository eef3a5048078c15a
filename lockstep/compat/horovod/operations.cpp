#include "lockstep/compat/horovod/operations.h"

#include <ATen/Functions.h>

#include <exception>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/named/session.h"
#include "lockstep/tensor/collectives.h"

namespace lockstep::compat::horovod {
namespace {

using named::Kind;
using Operations = std::vector<std::shared_ptr<named::Operation>>;
using Tensors = std::vector<at::Tensor>;

// One tensor of a call: contiguous memory to read, and for verbs in place to write.
struct Buffers {
  at::Tensor source, target;
};

at::Tensor plain(const at::Tensor& tensor) {
  if (!tensor.defined()) throw InvalidArgument("horovod: the tensor is undefined");
  if (!tensor.device().is_cpu())
    throw InvalidArgument(
        str("horovod: the tensor is on ", tensor.device().str(), "; these operations are for CPU tensors"));
  if (tensor.is_sparse())
    throw InvalidArgument("horovod: the tensor is sparse; gather its indices and values");
  return tensor.detach().contiguous();
}

// Horovod's names begin with the verb, so that two verbs may have one name.
std::string name_of(Kind kind, const std::string& name, std::size_t place, bool is_group) {
  if (name.empty()) return {};
  return str(named::name_of(kind), ".", name, is_group ? str(".", place) : "");
}

named::Submission submission(Kind kind, const Buffers& buffers, std::string name, const ProcessSet& set) {
  named::Submission made{.input = buffers.source.data_ptr()};
  if (buffers.target.defined()) made.output = buffers.target.data_ptr();
  made.keep_alive = std::make_shared<Buffers>(buffers);
  made.request.kind = kind;
  made.request.name = std::move(name);
  made.request.process_set = set.process_set_id();
  made.request.dtype = dtype_of(buffers.source.scalar_type());
  made.request.shape = buffers.source.sizes().vec();
  return made;
}

void add_reduction(named::Request& request, const ReduceOptions& options) {
  request.op = options.op;
  request.prescale = options.prescale_factor;
  request.postscale = options.postscale_factor;
}

Operations submit(std::vector<named::Submission> all, bool is_group) {
  if (is_group) return named::engine()->submit_all(std::move(all));
  return {named::engine()->submit(std::move(all.front()))};
}

Handle start_allreduce(const Tensors& tensors, const Tensors& outputs, const ReduceOptions& options,
                       bool is_group) {
  if (tensors.empty()) throw InvalidArgument("horovod: a group of tensors has at least one");
  std::vector<named::Submission> all;
  Tensors targets;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor source = plain(tensors[i]);
    targets.push_back(outputs[i].is_contiguous() ? outputs[i].detach() : at::empty_like(source));
    all.push_back(submission(Kind::ALLREDUCE, {source, targets[i]},
                             name_of(Kind::ALLREDUCE, options.name, i, is_group), options.process_set));
    add_reduction(all.back().request, options);
  }
  return {submit(std::move(all), is_group), [outputs, targets](const Operations&) {
            for (std::size_t i = 0; i < outputs.size(); ++i) {
              if (!outputs[i].is_contiguous()) outputs[i].detach().copy_(targets[i]);
            }
            return outputs;
          }};
}

Tensors new_like(const Tensors& tensors) {
  Tensors made;
  for (const at::Tensor& tensor : tensors)
    made.push_back(at::empty(tensor.sizes(), tensor.options().requires_grad(false)));
  return made;
}

at::Tensor compressed(const at::Tensor& tensor, Compression compression) {
  return compression == Compression::fp16 && tensor.is_floating_point() ? tensor.detach().to(at::kHalf)
                                                                        : tensor;
}

// The memory that an operation made, as a tensor that keeps it alive.
at::Tensor own_result(const std::shared_ptr<named::Operation>& operation, at::ScalarType type) {
  const named::OperationResult& result = operation->result();
  return at::from_blob(
      result.memory.get(), result.shape, [operation](void*) {}, at::TensorOptions(type));
}

Handle start_many(Kind kind, const Tensors& tensors, const ReduceOptions& options, bool is_group) {
  if (tensors.empty()) throw InvalidArgument("horovod: a group of tensors has at least one");
  std::vector<named::Submission> all;
  std::vector<at::ScalarType> types;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    all.push_back(submission(kind, {plain(tensors[i]), {}}, name_of(kind, options.name, i, is_group),
                             options.process_set));
    if (kind == Kind::REDUCESCATTER) add_reduction(all.back().request, options);
    types.push_back(tensors[i].scalar_type());
  }
  return {submit(std::move(all), is_group), [types](const Operations& operations) {
            Tensors made;
            for (std::size_t i = 0; i < operations.size(); ++i)
              made.push_back(own_result(operations[i], types[i]));
            return made;
          }};
}

ReduceOptions as_reduction(const OperationOptions& options) {
  return {.name = options.name, .process_set = options.process_set};
}

}  // namespace

bool Handle::poll() const {
  for (const auto& operation : operations_) {
    if (!operation->poll()) return false;
  }
  return true;
}

// All are waited for even if one fails, because their buffers are in use until then.
std::vector<at::Tensor> Handle::synchronize() {
  if (operations_.empty())
    throw InvalidArgument("horovod: synchronize() of a handle that was synchronized before");
  const Operations operations = std::exchange(operations_, {});
  std::exception_ptr failure;
  for (const auto& operation : operations) {
    try {
      operation->wait();
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
  return finish_(operations);
}

Handle allreduce_async(const at::Tensor& tensor, const ReduceOptions& options) {
  return start_allreduce({tensor}, new_like({tensor}), options, false);
}
Handle allreduce_async_(const at::Tensor& tensor, const ReduceOptions& options) {
  return start_allreduce({tensor}, {tensor}, options, false);
}
at::Tensor allreduce(const at::Tensor& tensor, const ReduceOptions& options) {
  return allreduce_async(compressed(tensor, options.compression), options)
      .synchronize()
      .front()
      .to(tensor.scalar_type());
}
void allreduce_(const at::Tensor& tensor, const ReduceOptions& options) {
  if (options.compression == Compression::none) {
    allreduce_async_(tensor, options).synchronize();
  } else {
    tensor.detach().copy_(allreduce(tensor, options));
  }
}

Handle grouped_allreduce_async(const Tensors& tensors, const ReduceOptions& options) {
  return start_allreduce(tensors, new_like(tensors), options, true);
}
Handle grouped_allreduce_async_(const Tensors& tensors, const ReduceOptions& options) {
  return start_allreduce(tensors, tensors, options, true);
}
Tensors grouped_allreduce(const Tensors& tensors, const ReduceOptions& options) {
  Tensors small;
  for (const at::Tensor& tensor : tensors) small.push_back(compressed(tensor, options.compression));
  Tensors made = grouped_allreduce_async(small, options).synchronize();
  for (std::size_t i = 0; i < made.size(); ++i) made[i] = made[i].to(tensors[i].scalar_type());
  return made;
}
void grouped_allreduce_(const Tensors& tensors, const ReduceOptions& options) {
  const Tensors made = grouped_allreduce(tensors, options);
  for (std::size_t i = 0; i < made.size(); ++i) tensors[i].detach().copy_(made[i]);
}

Handle allgather_async(const at::Tensor& tensor, const OperationOptions& options) {
  return start_many(Kind::ALLGATHER, {tensor}, as_reduction(options), false);
}
at::Tensor allgather(const at::Tensor& tensor, const OperationOptions& options) {
  return allgather_async(tensor, options).synchronize().front();
}
Tensors grouped_allgather(const Tensors& tensors, const OperationOptions& options) {
  return start_many(Kind::ALLGATHER, tensors, as_reduction(options), true).synchronize();
}

namespace {

Handle start_broadcast(const at::Tensor& tensor, const at::Tensor& output, int root_rank,
                       const OperationOptions& options) {
  const at::Tensor source = plain(tensor);
  const at::Tensor target = output.is_contiguous() ? output.detach() : at::empty_like(source);
  named::Submission one = submission(Kind::BROADCAST, {source, target},
                                     name_of(Kind::BROADCAST, options.name, 0, false), options.process_set);
  one.request.root = root_rank;
  return {{named::engine()->submit(std::move(one))}, [output, target](const Operations&) -> Tensors {
            if (!output.is_contiguous()) output.detach().copy_(target);
            return {output};
          }};
}

}  // namespace

Handle broadcast_async(const at::Tensor& tensor, int root_rank, const OperationOptions& options) {
  return start_broadcast(tensor, new_like({tensor}).front(), root_rank, options);
}
Handle broadcast_async_(const at::Tensor& tensor, int root_rank, const OperationOptions& options) {
  return start_broadcast(tensor, tensor, root_rank, options);
}
at::Tensor broadcast(const at::Tensor& tensor, int root_rank, const OperationOptions& options) {
  return broadcast_async(tensor, root_rank, options).synchronize().front();
}
void broadcast_(const at::Tensor& tensor, int root_rank, const OperationOptions& options) {
  broadcast_async_(tensor, root_rank, options).synchronize();
}

Handle alltoall_async(const at::Tensor& tensor, const std::vector<std::int64_t>& splits,
                      const OperationOptions& options) {
  named::Submission one = submission(Kind::ALLTOALL, {plain(tensor), {}},
                                     name_of(Kind::ALLTOALL, options.name, 0, false), options.process_set);
  one.request.splits = splits;
  return {{named::engine()->submit(std::move(one))},
          [type = tensor.scalar_type()](const Operations& operations) -> Tensors {
            const auto& received = operations.front()->result().received_splits;
            return {own_result(operations.front(), type), at::tensor(received)};
          }};
}
std::pair<at::Tensor, std::vector<std::int64_t>> alltoall(const at::Tensor& tensor,
                                                          const std::vector<std::int64_t>& splits,
                                                          const OperationOptions& options) {
  const Tensors made = alltoall_async(tensor, splits, options).synchronize();
  const auto* const first = made[1].const_data_ptr<std::int64_t>();
  return {made[0], {first, first + made[1].numel()}};
}
at::Tensor alltoall(const at::Tensor& tensor, const OperationOptions& options) {
  return alltoall_async(tensor, {}, options).synchronize().front();
}

Handle reducescatter_async(const at::Tensor& tensor, const ReduceOptions& options) {
  return start_many(Kind::REDUCESCATTER, {tensor}, options, false);
}
at::Tensor reducescatter(const at::Tensor& tensor, const ReduceOptions& options) {
  return reducescatter_async(compressed(tensor, options.compression), options)
      .synchronize()
      .front()
      .to(tensor.scalar_type());
}
Tensors grouped_reducescatter(const Tensors& tensors, const ReduceOptions& options) {
  return start_many(Kind::REDUCESCATTER, tensors, options, true).synchronize();
}

void barrier(const ProcessSet& process_set) {
  named::engine()
      ->submit({.request = {.kind = Kind::BARRIER, .process_set = process_set.process_set_id()}})
      ->wait();
}

int join() {
  const auto joined = named::engine()->submit({.request = {.kind = Kind::JOIN, .name = "join"}});
  joined->wait();
  return joined->result().number;
}

}  // namespace lockstep::compat::horovod
