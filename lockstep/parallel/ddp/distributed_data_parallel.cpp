#include "lockstep/parallel/ddp/distributed_data_parallel.h"

#include <torch/optim/optimizer.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_set>

#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/base/str.h"
#include "lockstep/job/job.h"
#include "lockstep/parallel/ddp/broadcast_tensors.h"
#include "lockstep/parallel/ddp/hooks/hook_registry.h"
#include "lockstep/parallel/ddp/sparse_gradient.h"
#include "lockstep/parallel/ddp/verify_models.h"
#include "lockstep/tensor/caching_allocator.h"
#include "lockstep/tensor/collectives.h"

namespace lockstep {
namespace {

constexpr std::string_view MODULE_PREFIX = "module.";

[[noreturn]] void refuse_ddp(const std::string& what) {
  throw InvalidArgument("DistributedDataParallel: " + what);
}

std::size_t bytes_of_cap(double mb, std::string_view option) {
  const double bytes = mb * 1024 * 1024;
  if (!(bytes >= 1) || bytes > 1e15)
    refuse_ddp(lockstep::str(option, " is ", mb, "; it must be a positive number of MiB"));
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
    refuse_ddp(lockstep::str("backward_passes_per_step is ", options.backward_passes_per_step,
                             "; it must be at least 1"));
  }
  return {.caps = caps_of(options),
          .backward_passes_per_step = options.backward_passes_per_step,
          .find_unused_parameters = options.find_unused_parameters && !options.static_graph,
          .static_graph = options.static_graph,
          .sparse_gradients = options.sparse_gradients};
}

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += lockstep::str(text.empty() ? "" : " ", printable(name));
  return text;
}

// What every rank must have set alike, as text.
std::string settings_of(const ReducerOptions& options, bool broadcast_buffers) {
  return lockstep::str("bucket_cap ", options.caps.bytes, " bytes, first bucket ", options.caps.first_bytes,
                       " bytes, find_unused_parameters ", options.find_unused_parameters, ", static_graph ",
                       options.static_graph, ", broadcast_buffers ", broadcast_buffers,
                       ", backward_passes_per_step ", options.backward_passes_per_step,
                       ", sparse gradients [", join(options.sparse_gradients), "]");
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
  if (!tensor.defined()) refuse_ddp(who + " is an undefined tensor");
  if (tensor.layout() != c10::kStrided)
    refuse_ddp(lockstep::str(who, " is ", tensor.layout(), "; only dense tensors are supported"));
}

// All tensors are on the CPU, or on this rank's device of a group that serves it.
void check_device(const std::string& name, const at::Device& device, const at::Device& first,
                  const ProcessGroup& group) {
  const std::string who = lockstep::str("\"", printable(name), "\" is on ", device);
  if (device.is_cpu() && first.is_cpu()) return;
  if (device != first)
    refuse_ddp(lockstep::str(who, ", other tensors are on ", first, "; a model is on one device"));
  const Backend& backend = group.backend();
  if (!device.is_cuda() || !backend.serves(DeviceType::CUDA))
    refuse_ddp(lockstep::str(who, ", and backend \"", backend.name(), "\" serves CPU tensors only",
                             device.is_cuda() ? "; use init_process_group(\"nccl\")" : ""));
  if (device.index() != backend.device_index())
    refuse_ddp(lockstep::str(who, ", and this rank's device in the group is cuda:", backend.device_index()));
}

void check_devices(const NamedTensors& tensors, const std::vector<int>& device_ids,
                   const ProcessGroup& group) {
  const at::Device device = tensors.empty() ? at::Device(at::kCPU) : tensors.front().second.device();
  for (const auto& [name, tensor] : tensors) check_device(name, tensor.device(), device, group);
  if (device_ids.empty() || (device.is_cuda() && device_ids == std::vector<int>{device.index()})) return;
  refuse_ddp(lockstep::str("device_ids names GPU ", device_ids.front(), ", and the model is on ", device,
                           device.is_cpu() ? ": leave device_ids empty, as for a CPU model in Python"
                                           : ": name its device alone, or leave device_ids empty"));
}

NamedTensors trainable(const NamedTensors& parameters) {
  NamedTensors chosen;
  for (const auto& [name, tensor] : parameters) {
    if (!tensor.requires_grad()) continue;
    if (!tensor.is_leaf()) {
      refuse_ddp(
          lockstep::str("\"", printable(name),
                        "\" is the result of an operation; wrap the leaf tensors it was computed from"));
    }
    chosen.emplace_back(name, tensor);
  }
  if (chosen.empty()) {
    refuse_ddp(
        "the model has no parameter that requires a gradient, so there is nothing to average; use it without "
        "DDP");
  }
  return chosen;
}

// Adds those that the module's embeddings say.
void find_sparse(const torch::nn::Module& module, const NamedTensors& parameters,
                 std::vector<std::string>& names) {
  const auto sparse = sparse_parameters(module);
  for (const auto& [name, tensor] : parameters) {
    const bool is_one = std::any_of(sparse.begin(), sparse.end(),
                                    [&, &weight = tensor](const auto& one) { return one.is_same(weight); });
    if (is_one && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
}

void check_sparse(const std::vector<std::string>& names, const NamedTensors& parameters) {
  for (const std::string& wanted : names) {
    const auto found = std::find_if(parameters.begin(), parameters.end(),
                                    [&](const auto& named) { return named.first == wanted; });
    const std::string who = lockstep::str("\"", printable(wanted), "\"");
    if (found == parameters.end())
      refuse_ddp("sparse_gradients names " + who +
                 ", which is no parameter of the model (a shared one counts under its first name)");
    if (!found->second.is_cpu())
      refuse_ddp(lockstep::str(who, " has sparse gradients and is on ", found->second.device(),
                               "; only those of CPU parameters travel: use sparse(false)"));
  }
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

// What a wrapper announces to a Join before it communicates.
enum Announced : std::uint32_t { BUFFERS, AVERAGE, NOTHING };

// By what an average over all `ranks`, to which those without inputs contributed zeros, must be multiplied.
double factor_of(const JoinRound& round, const JoinOptions& options, int ranks) {
  const bool over_active = !options.divide_by_initial_world_size && round.active > 0;
  return over_active ? static_cast<double>(ranks) / round.active : 1.0;
}

std::function<double()> announce_average(JoinMembership& membership, int ranks) {
  const JoinOptions options = membership.options();
  if (!options.enable) return {};
  return [notice = membership.announce(AVERAGE), options, ranks] {
    return factor_of(notice->wait(), options, ranks);
  };
}

// On a rank that has no more inputs.
class StandIn : public JoinHook {
 public:
  StandIn(ProcessGroup group, std::shared_ptr<Reducer> reducer, std::vector<at::Tensor> parameters,
          std::vector<at::Tensor> buffers, const JoinOptions& options)
      : group_(std::move(group)),
        reducer_(std::move(reducer)),
        parameters_(std::move(parameters)),
        buffers_(std::move(buffers)),
        options_(options) {}

  void main_hook(std::uint32_t what, const JoinRound& round) override {
    if (what == BUFFERS) broadcast_tensors(buffers_, group_, round.newest_active);
    if (what == AVERAGE) reducer_->stand_in(factor_of(round, options_, group_.size()));
  }
  void post_hook(const JoinEnd& end) override {
    broadcast_tensors(parameters_, group_, end.newest);
    broadcast_tensors(buffers_, group_, end.newest);
  }

 private:
  ProcessGroup group_;
  std::shared_ptr<Reducer> reducer_;
  std::vector<at::Tensor> parameters_, buffers_;
  JoinOptions options_;
};

}  // namespace

DistributedDataParallelBase::DistributedDataParallelBase(const torch::nn::Module* module,
                                                         NamedTensors parameters, NamedTensors buffers,
                                                         const DistributedDataParallelOptions& options)
    : group_(options.process_group ? *options.process_group : world()),
      parameters_(std::move(parameters)),
      buffers_(std::move(buffers)),
      broadcast_buffers_(options.broadcast_buffers),
      watch_(module, parameters_),
      buffer_watch_(module) {
  ReducerOptions settings = reducer_options(options);
  if (module != nullptr) find_sparse(*module, distinct(parameters_), settings.sparse_gradients);
  // First what needs all ranks, so that what is refused below is refused on all of them alike.
  verify_same_model(describe_model(parameters_, buffers_, settings_of(settings, broadcast_buffers_)), group_);
  NamedTensors all = parameters_;
  all.insert(all.end(), buffers_.begin(), buffers_.end());
  for (const auto& [name, tensor] : all) check_tensor(name, tensor);
  check_devices(all, options.device_ids, group_);
  check_sparse(settings.sparse_gradients, distinct(parameters_));
  const NamedTensors chosen = trainable(distinct(parameters_));

  fail_point("ddp.construct");
  if (is_initialized()) install_caching_allocator();  // not in a host program that brings its own groups
  std::vector<at::Tensor> state = tensors_of(distinct(parameters_));
  for (const auto& [name, tensor] : distinct(buffers_)) state.push_back(tensor);
  broadcast_tensors(state, group_);
  reducer_ = make_reducer(chosen, group_, settings);
  reducer_->set_announce([membership = join_membership(), ranks = group_.size()] {
    return announce_average(*membership, ranks);
  });
}

void DistributedDataParallelBase::before_forward(bool training) {
  buffer_watch_.forward_begins(buffers_);
  reducer_->before_forward(at::GradMode::is_enabled() ? watch_.change() : std::nullopt);
  if (!training || !at::GradMode::is_enabled() || !reducer_->is_synchronised()) return;
  const auto buffers = broadcast_buffers_ ? tensors_of(distinct(buffers_)) : std::vector<at::Tensor>();
  if (!buffers.empty()) {
    const JoinRound round = Join::notify_join_context(*this, BUFFERS)->wait();
    broadcast_tensors(buffers, group_, round.newest_active);
  } else if (join_membership()->options().throw_on_early_termination) {
    Join::notify_join_context(*this, NOTHING)->wait();
  }
}

std::shared_ptr<JoinHook> DistributedDataParallelBase::join_hook(const JoinOptions& options) {
  const auto parameters = tensors_of(distinct(parameters_));
  return std::make_shared<StandIn>(group_, reducer_, parameters, tensors_of(distinct(buffers_)), options);
}

void DistributedDataParallelBase::after_forward(bool training, const OutputTensors& outputs) {
  if (!outputs.complete || outputs.tensors.empty()) return reducer_->note_unknown_outputs();
  reducer_->note_outputs(outputs.tensors);
  if (training) reducer_->take_part_if_unreached();
}

void DistributedDataParallelBase::register_comm_hook(const std::string& name) {
  register_comm_hook(make_comm_hook(name));
}

void DistributedDataParallelBase::register_comm_hook(const std::string& name,
                                                     FunctionHook::Function function) {
  if (!function) refuse_ddp("register_comm_hook() was given an empty function");
  register_comm_hook(std::make_shared<FunctionHook>(name, std::move(function)));
}

void DistributedDataParallelBase::register_comm_hook(std::shared_ptr<CommHook> hook) {
  if (!hook) refuse_ddp("register_comm_hook() was given no hook");
  verify_same_model(describe_model({}, {}, "communication hook " + hook->describe()), group_);
  reducer_->register_comm_hook(std::move(hook));
}

RankTimes DistributedDataParallelBase::compare_ranks() const {
  const StepTimes own = stats().last_step;
  const at::Tensor mine = at::empty({6}, at::kDouble);
  const std::array<double, 6> values = {own.between,       own.forward, own.backward,
                                        own.communication, own.exposed, own.waited};
  std::copy(values.begin(), values.end(), mine.mutable_data_ptr<double>());
  std::vector<at::Tensor> all;
  for (int rank = 0; rank < group_.size(); ++rank) all.push_back(at::empty_like(mine));
  all_gather(all, mine, group_);
  RankTimes times;
  for (const at::Tensor& one : all) {
    const auto* part = one.const_data_ptr<double>();
    times.ranks.push_back({.between = part[0],
                           .forward = part[1],
                           .backward = part[2],
                           .communication = part[3],
                           .exposed = part[4],
                           .waited = part[5]});
  }
  return times;
}

DistributedDataParallelBase::NoSync::NoSync(std::shared_ptr<Reducer> reducer)
    : reducer_(std::move(reducer)), before_(reducer_->set_synchronised(false)) {}

DistributedDataParallelBase::NoSync::~NoSync() {
  if (reducer_) reducer_->set_synchronised(before_);
}

void DistributedDataParallelBase::refuse_forgotten(
    const std::vector<const torch::optim::Optimizer*>& optimizers) const {
  std::unordered_set<const void*> stepped;
  for (const auto* optimizer : optimizers) {
    for (const auto& group : optimizer->param_groups()) {
      for (const at::Tensor& tensor : group.params()) stepped.insert(tensor.unsafeGetTensorImpl());
    }
  }
  const NamedTensors once = distinct(parameters_);
  const auto trained = [&](const auto& named) {
    return stepped.contains(named.second.unsafeGetTensorImpl());
  };
  const auto known = std::count_if(once.begin(), once.end(), trained);
  for (const auto& named : once) {
    if (!named.second.requires_grad() || trained(named)) continue;
    refuse_ddp(lockstep::str(
        "no optimiser steps parameter \"", printable(named.first), "\": of ", stepped.size(),
        " tensors that the optimisers step, ", known, " are among the ", once.size(),
        " parameters of this model; build the optimiser from ddp.parameters(), after wrapping"));
  }
}

void DistributedDataParallelBase::check_buffers() const {
  if (const auto change = buffer_watch_.change(buffers_)) refuse_ddp(*change);
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

// NOLINTNEXTLINE(readability-make-member-function-const): it changes the model
void DistributedDataParallelBase::load_state_dict(const torch::OrderedDict<std::string, at::Tensor>& state) {
  const auto own = state_dict();
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;  // to, from
  std::unordered_set<std::string> loaded;
  for (const auto& item : state) {
    std::string name = item.key();
    if (!own.contains(name) && name.starts_with(MODULE_PREFIX)) name.erase(0, MODULE_PREFIX.size());
    const at::Tensor* to = own.find(name);
    if (to == nullptr)
      refuse_ddp(lockstep::str("the state has \"", printable(item.key()), "\", which the model has not"));
    if (to->sizes() != item.value().sizes()) {
      refuse_ddp(lockstep::str("\"", printable(name), "\" is ", to->sizes(), " in the model but ",
                               item.value().sizes(), " in the state"));
    }
    loaded.insert(name);
    copies.emplace_back(*to, item.value());
  }
  for (const auto& item : own) {
    if (!loaded.contains(item.key()))
      refuse_ddp(lockstep::str("the state lacks \"", printable(item.key()), "\""));
  }
  const at::NoGradGuard no_grad;
  for (auto& [to, from] : copies) to.copy_(from);
}

}  // namespace lockstep
