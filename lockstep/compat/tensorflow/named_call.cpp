#include "lockstep/compat/tensorflow/named_call.h"

#include "lockstep/compat/tensorflow/registration.h"

namespace lockstep::compat::tensorflow {
namespace {

void free_result(void* /*data*/, std::size_t /*length*/, void* operation) {
  lockstep_named_free(static_cast<lockstep_named>(reinterpret_cast<std::intptr_t>(operation)));
}

}  // namespace

void NamedCall::start(const NamedAttributes& attributes, TF_OpKernelContext* context,
                      TF_AsyncOpKernelDoneCallback* done) {
  auto* const call =
      new NamedCall(attributes, context, *reinterpret_cast<const std::function<void()>*>(done));
  if (!guarded(context, [&] { call->submit(); })) {
    delete call;
    return api().TF_RunAsyncOpKernelDoneCallback(done);
  }
  // From the last of these on the call may be gone. So the handles are the loop's own.
  const std::vector<lockstep_named> operations = call->operations_;
  const int is_awaited = attributes.is_awaited ? 1 : 0;
  for (const lockstep_named operation : operations)
    lockstep_named_notify(operation, name_ended, call, is_awaited);
}

bool NamedCall::writes_to_outputs() const {
  return given_.kind == LOCKSTEP_NAMED_ALLREDUCE || given_.kind == LOCKSTEP_NAMED_BROADCAST;
}

void NamedCall::submit() {
  const bool has_splits = given_.kind == LOCKSTEP_NAMED_ALLTOALL;
  const int count = has_splits ? 1 : api().TF_NumInputs(context_);
  if (has_splits) read_splits();
  std::vector<std::vector<std::int64_t>> shapes;
  for (int i = 0; i < count; ++i) {
    tensors_.push_back(writes_to_outputs() ? output_in_place_of(context_, i) : input_of(context_, i));
    shapes.push_back(tensors_.back().shape());
  }
  std::vector<lockstep_named_request> requests;
  for (std::size_t i = 0; i < shapes.size(); ++i) requests.push_back(request_of(i, shapes[i]));
  operations_.resize(requests.size());
  left_ = requests.size();
  check(lockstep_named_submit(requests.data(), requests.size(), operations_.data()));
}

lockstep_named_request NamedCall::request_of(std::size_t index, const std::vector<std::int64_t>& shape) {
  const Tensor& tensor = tensors_[index];
  lockstep_named_request request = LOCKSTEP_NAMED_REQUEST;
  request.name = index < given_.names.size() ? given_.names[index].c_str() : nullptr;
  request.kind = given_.kind;
  request.process_set = given_.process_set;
  request.dtype = dtype_of(tensor.type());
  request.op = given_.op;
  request.root = given_.root;
  request.dimensions = static_cast<int>(shape.size());
  request.shape = shape.data();
  request.splits = splits_.empty() ? nullptr : splits_.data();
  request.prescale = given_.prescale;
  request.postscale = given_.postscale;
  request.input = tensor.data();
  request.output = writes_to_outputs() ? tensor.data() : nullptr;
  return request;
}

void NamedCall::read_splits() {
  const Tensor given = input_of(context_, 1);
  const auto* const first = static_cast<const std::int64_t*>(given.data());
  splits_.assign(first, first + given.count());
  int rank = -1;
  int size = 0;
  check(lockstep_named_process_set(given_.process_set, &rank, &size));
  if (!splits_.empty() && splits_.size() != static_cast<std::size_t>(size)) {
    throw Failure{INVALID_ARGUMENT, "splits must have one number for each of the " + std::to_string(size) +
                                        " ranks, and have " + std::to_string(splits_.size())};
  }
}

void NamedCall::name_ended(void* call) {
  auto* const self = static_cast<NamedCall*>(call);
  if (self->left_.fetch_sub(1) == 1) self->end();
}

void NamedCall::end() noexcept {
  const bool is_good = guarded(context_, [&] {
    for (const lockstep_named operation : operations_) check(lockstep_named_wait(operation));
    if (writes_to_outputs()) return;
    if (given_.kind == LOCKSTEP_NAMED_ALLTOALL) give_received();
    for (std::size_t i = 0; i < operations_.size(); ++i) give_result(i);
  });
  if (!is_good || writes_to_outputs()) {
    for (const lockstep_named operation : operations_) {
      if (operation != 0) lockstep_named_free(operation);
    }
  }
  const std::function<void()> done = std::move(done_);
  delete this;  // before TensorFlow goes on, because it holds tensors
  done();
}

// The tensor shows the operation's memory, and frees the operation.
void NamedCall::give_result(std::size_t index) {
  void* data = nullptr;
  std::int64_t rows = 0;
  check(lockstep_named_result(operations_[index], &data, &rows));
  std::vector<std::int64_t> shape = tensors_[index].shape();
  shape.front() = rows;
  std::size_t bytes = element_size(tensors_[index].type());
  for (const std::int64_t dim : shape) bytes *= static_cast<std::size_t>(dim);
  const int output = static_cast<int>(index);
  if (bytes == 0) {
    new_output(context_, output, tensors_[index].type(), shape);
    lockstep_named_free(operations_[index]);
  } else {
    void* const operation = reinterpret_cast<void*>(static_cast<std::intptr_t>(operations_[index]));
    const Tensor made(api().TF_NewTensor(tensors_[index].type(), shape.data(), static_cast<int>(shape.size()),
                                         data, bytes, free_result, operation));
    operations_[index] = 0;
    const Status status;
    api().TF_SetOutput(context_, output, made.get(), status.get());
    status.check();
    return;
  }
  operations_[index] = 0;
}

void NamedCall::give_received() {
  int rank = -1;
  int size = 0;
  check(lockstep_named_process_set(given_.process_set, &rank, &size));
  const Tensor received = new_output(context_, 1, INT64, {size});
  check(lockstep_named_received(operations_[0], static_cast<std::int64_t*>(received.data())));
}

}  // namespace lockstep::compat::tensorflow
