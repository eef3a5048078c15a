#include "lockstep/parallel/ddp/distributed_data_parallel.h"

#include <cmath>
#include <unordered_set>

#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/base/str.h"
#include "lockstep/job/job.h"
#include "lockstep/parallel/ddp/broadcast_tensors.h"
#include "lockstep/parallel/ddp/verify_models.h"
#include "lockstep/tensor/caching_allocator.h"
#include "lockstep/tensor/collectives.h"

namespace lockstep {
namespace {

constexpr std::string_view PREFIX = "module.";

[[noreturn]] void refuse(const std::string& what) {
  throw InvalidArgument("DistributedDataParallel: " + what);
}

std::size_t bytes_of_cap(double mb, std::string_view option) {
  const double bytes = mb * 1024 * 1024;
  if (!(bytes >= 1) || bytes > 1e15)
    refuse(lockstep::str(option, " is ", mb, "; it must be a positive number of MiB"));
  return static_cast<std::size_t>(bytes);
}

BucketCaps caps_of(const DistributedDataParallelOptions& options) {
  const double cap = options.bucket_cap_mb.value_or(25);
  const std::size_t bytes = bytes_of_cap(cap, "bucket_cap_mb");
  const double first = options.first_bucket_mb.value_or(options.bucket_cap_mb ? cap : 1);
  return {.first_bytes = bytes_of_cap(first, "first_bucket_mb"), .bytes = bytes};
}

ReducerOptions reducer_options(const DistributedDataParallelOptions& options) {
  if (options.backward_passes_per_step < 1) {
    refuse(lockstep::str("backward_passes_per_step is ", options.backward_passes_per_step,
                         "; it must be at least 1"));
  }
  return {.caps = caps_of(options),
          .backward_passes_per_step = options.backward_passes_per_step,
          .find_unused_parameters = options.find_unused_parameters};
}

// What every rank must have set alike, as text.
std::string settings_of(const ReducerOptions& options, bool broadcast_buffers) {
  return lockstep::str("bucket_cap ", options.caps.bytes, " bytes, first bucket ", options.caps.first_bytes,
                       " bytes, find_unused_parameters ", options.find_unused_parameters,
                       ", broadcast_buffers ", broadcast_buffers, ", backward_passes_per_step ",
                       options.backward_passes_per_step);
}

// A tensor registered under several names counts once, under the first.
NamedTensors distinct(const NamedTensors& tensors) {
  NamedTensors once;
  std::unordered_set<const void*> seen;
  for (const auto& named : tensors) {
    if (seen.insert(named.second.unsafeGetTensorImpl()).second) once.push_back(named);
  }
  return once;
}

void check_tensor(const std::string& name, const at::Tensor& tensor) {
  const std::string who = lockstep::str("\"", printable(name), "\"");
  if (!tensor.defined()) refuse(who + " is an undefined tensor");
  if (tensor.layout() != c10::kStrided)
    refuse(lockstep::str(who, " is ", tensor.layout(), "; only dense tensors are supported"));
  if (!tensor.device().is_cpu())
    refuse(lockstep::str(who, " is on ", tensor.device(), "; only CPU tensors are supported"));
}

NamedTensors trainable(const NamedTensors& parameters) {
  NamedTensors chosen;
  for (const auto& [name, tensor] : parameters) {
    if (!tensor.requires_grad()) continue;
    if (!tensor.is_leaf()) {
      refuse(lockstep::str("\"", printable(name),
                           "\" is the result of an operation; wrap the leaf tensors it was computed from"));
    }
    chosen.emplace_back(name, tensor);
  }
  if (chosen.empty()) {
    refuse(
        "the model has no parameter that requires a gradient, so there is nothing to average; use it without "
        "DDP");
  }
  return chosen;
}

// A rank that cannot have its buckets tells the others, which would otherwise wait for it in their first backward.
std::shared_ptr<Reducer> make_reducer(const NamedTensors& parameters, const ProcessGroup& group,
                                      const ReducerOptions& options) {
  try {
    return Reducer::create(parameters, group, options);
  } catch (const std::exception& error) {
    group.abort(lockstep::str("DistributedDataParallel, rank ", group.rank(), ": ", error.what()));
    throw;
  }
}

std::vector<at::Tensor> tensors_of(const NamedTensors& named) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : named) tensors.push_back(tensor);
  return tensors;
}

}  // namespace

DistributedDataParallelBase::DistributedDataParallelBase(NamedTensors parameters, NamedTensors buffers,
                                                         const DistributedDataParallelOptions& options)
    : group_(options.process_group ? *options.process_group : world()),
      parameters_(std::move(parameters)),
      buffers_(std::move(buffers)),
      broadcast_buffers_(options.broadcast_buffers) {
  const ReducerOptions settings = reducer_options(options);
  // First what needs all ranks, so that what is refused below is refused on all of them alike.
  verify_same_model(describe_model(parameters_, buffers_, settings_of(settings, broadcast_buffers_)), group_);
  for (const auto& [name, tensor] : parameters_) check_tensor(name, tensor);
  for (const auto& [name, tensor] : buffers_) check_tensor(name, tensor);
  const NamedTensors chosen = trainable(distinct(parameters_));

  fail_point("ddp.construct");
  if (is_initialized()) install_caching_allocator();  // not in a host program that brings its own groups
  std::vector<at::Tensor> state = tensors_of(distinct(parameters_));
  for (const auto& [name, tensor] : distinct(buffers_)) state.push_back(tensor);
  broadcast_tensors(state, group_);
  reducer_ = make_reducer(chosen, group_, settings);
}

void DistributedDataParallelBase::before_forward(bool training) {
  reducer_->before_forward();
  const bool sync =
      training && broadcast_buffers_ && at::GradMode::is_enabled() && reducer_->is_synchronised();
  if (sync) broadcast_tensors(tensors_of(distinct(buffers_)), group_);
}

void DistributedDataParallelBase::after_forward(bool training, const OutputTensors& outputs) {
  if (!outputs.complete || outputs.tensors.empty()) return reducer_->note_unknown_outputs();
  reducer_->note_outputs(outputs.tensors);
  if (training) reducer_->take_part_if_unreached();
}

DistributedDataParallelBase::NoSync::NoSync(std::shared_ptr<Reducer> reducer)
    : reducer_(std::move(reducer)), before_(reducer_->set_synchronised(false)) {}

DistributedDataParallelBase::NoSync::~NoSync() {
  if (reducer_) reducer_->set_synchronised(before_);
}

std::vector<at::Tensor> DistributedDataParallelBase::parameters() const {
  return tensors_of(distinct(parameters_));
}

torch::OrderedDict<std::string, at::Tensor> DistributedDataParallelBase::named_parameters() const {
  torch::OrderedDict<std::string, at::Tensor> dict("parameter");
  for (const auto& [name, tensor] : distinct(parameters_)) dict.insert(name, tensor);
  return dict;
}

torch::OrderedDict<std::string, at::Tensor> DistributedDataParallelBase::state_dict() const {
  torch::OrderedDict<std::string, at::Tensor> dict("tensor");
  for (const auto& [name, tensor] : parameters_) dict.insert(name, tensor);
  for (const auto& [name, tensor] : buffers_) dict.insert(name, tensor);
  return dict;
}

void DistributedDataParallelBase::load_state_dict(const torch::OrderedDict<std::string, at::Tensor>& state) {
  const auto own = state_dict();
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;  // to, from
  std::unordered_set<std::string> loaded;
  for (const auto& item : state) {
    std::string name = item.key();
    if (!own.contains(name) && name.starts_with(PREFIX)) name.erase(0, PREFIX.size());
    const at::Tensor* to = own.find(name);
    if (to == nullptr)
      refuse(lockstep::str("the state has \"", printable(item.key()), "\", which the model has not"));
    if (to->sizes() != item.value().sizes()) {
      refuse(lockstep::str("\"", printable(name), "\" is ", to->sizes(), " in the model but ",
                           item.value().sizes(), " in the state"));
    }
    loaded.insert(name);
    copies.emplace_back(*to, item.value());
  }
  for (const auto& item : own) {
    if (!loaded.contains(item.key()))
      refuse(lockstep::str("the state lacks \"", printable(item.key()), "\""));
  }
  const at::NoGradGuard no_grad;
  for (auto& [to, from] : copies) to.copy_(from);
}

}  // namespace lockstep
