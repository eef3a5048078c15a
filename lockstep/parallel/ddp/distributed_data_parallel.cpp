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
#include "lockstep/job/virtual_ranks.h"
#include "lockstep/parallel/ddp/ddp_wrapper.h"
#include "lockstep/parallel/ddp/gradient_average.h"
#include "lockstep/parallel/ddp/virtual_replica.h"
#include "lockstep/parallel/gradients/hooks/hook_registry.h"
#include "lockstep/parallel/gradients/sparse_gradient.h"
#include "lockstep/parallel/replicas/broadcast_tensors.h"
#include "lockstep/parallel/replicas/model_checks.h"
#include "lockstep/parallel/replicas/verify_models.h"
#include "lockstep/tensor/caching_allocator.h"
#include "lockstep/tensor/collectives.h"

namespace lockstep {
namespace {

constexpr std::string_view MODULE_PREFIX = "module.";

std::size_t bytes_of_cap(double mb, std::string_view option) {
  const double bytes = mb * 1024 * 1024;
  if (!(bytes >= 1) || bytes > 1e15)
    DDP_WRAPPER.refuse(lockstep::str(option, " is ", mb, "; it must be a positive number of MiB"));
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
    DDP_WRAPPER.refuse(lockstep::str("backward_passes_per_step is ", options.backward_passes_per_step,
                                     "; it must be at least 1"));
  }
  return {.caps = caps_of(options),
          .backward_passes_per_step = options.backward_passes_per_step,
          .find_unused_parameters = options.find_unused_parameters && !options.static_graph,
          .static_graph = options.static_graph,
          .sparse_gradients = options.sparse_gradients,
          .model = {},
          .virtual_ranks = has_virtual_ranks() ? std::optional(current_virtual_rank_plan()) : std::nullopt};
}

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += lockstep::str(text.empty() ? "" : " ", printable(name));
  return text;
}

// The settings that must be equal on all ranks, as text.
std::string settings_of(const ReducerOptions& options, bool broadcast_buffers) {
  return lockstep::str("bucket_cap ", options.caps.bytes, " bytes, first bucket ", options.caps.first_bytes,
                       " bytes, find_unused_parameters ", options.find_unused_parameters, ", static_graph ",
                       options.static_graph, ", broadcast_buffers ", broadcast_buffers,
                       ", backward_passes_per_step ", options.backward_passes_per_step,
                       ", sparse gradients [", join(options.sparse_gradients), "], virtual ranks ",
                       options.virtual_ranks ? options.virtual_ranks->virtual_ranks : 0);
}

// If a rank cannot make its buckets, it tells the other ranks. Otherwise they would wait for it in their
// first backward.
std::shared_ptr<Reducer> make_reducer(const NamedTensors& parameters, const ProcessGroup& group,
                                      const ReducerOptions& options) {
  try {
    return Reducer::create(parameters, group, options);
  } catch (const std::exception& error) {
    group.abort(lockstep::str("DistributedDataParallel, rank ", group.rank(), ": ", error.what()));
    throw;
  }
}

// The announcements that a wrapper makes to a Join before it communicates.
enum Announced : std::uint32_t { BUFFERS, AVERAGE, NOTHING };

// The factor for an average over all `ranks` to which the ranks without inputs contributed zeros.
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

// Takes the place of a rank that has no more inputs.
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
    if (what == BUFFERS) {
      const Acting acting(Purpose::BUFFERS);
      broadcast_tensors(buffers_, group_, round.newest_active);
    }
    if (what == AVERAGE) reducer_->stand_in(factor_of(round, options_, group_.size()));
  }
  void post_hook(const JoinEnd& end) override {
    const Acting acting(Purpose::JOIN);
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
  group_.require_member("DistributedDataParallel");
  ReducerOptions settings = reducer_options(options);
  if (module != nullptr) {
    settings.model = name_of_model(*module);
    find_sparse(*module, distinct(parameters_), settings.sparse_gradients);
  }
  // Collective checks come first, so that all later refusals are the same on all ranks.
  verify_same_model(DDP_WRAPPER,
                    describe_model(parameters_, buffers_, settings_of(settings, broadcast_buffers_)), group_);
  const NamedTensors chosen =
      check_model(DDP_WRAPPER, parameters_, buffers_, options.device_ids, settings.sparse_gradients, group_);
  refuse_deferred(DDP_WRAPPER, parameters_);
  refuse_deferred(DDP_WRAPPER, buffers_);

  check_for_virtual_ranks(settings, group_, chosen);
  fail_point("ddp.construct");
  if (is_initialized()) install_caching_allocator();  // not in a host program that brings its own groups
  std::vector<at::Tensor> state = tensors_of(distinct(parameters_));
  for (const auto& [name, tensor] : distinct(buffers_)) state.push_back(tensor);
  {
    const Acting acting(Purpose::FIRST_WEIGHTS, settings.model);
    broadcast_tensors(state, group_);
  }
  model_ = settings.model;
  reducer_ = make_reducer(chosen, group_, settings);
  reducer_->set_announce([membership = join_membership(), ranks = group_.size()] {
    return announce_average(*membership, ranks);
  });
  if (settings.virtual_ranks) wrap_for_virtual_ranks();
}

void DistributedDataParallelBase::wrap_for_virtual_ranks() {
  const NamedTensors buffers = distinct(buffers_);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : buffers) names.push_back(name);
  virtual_replica_ = std::make_shared<VirtualReplica>(
      reducer_, names, TurnBuffers(tensors_of(buffers), group_, local_virtual_ranks(), broadcast_buffers_));
  add_virtual_rank_member(virtual_replica_);
}

void DistributedDataParallelBase::before_forward(bool training) {
  const bool trains = training && at::GradMode::is_enabled();
  if (trains && virtual_replica_ && !current_virtual_rank()) {
    DDP_WRAPPER.refuse(group_,
                       lockstep::str("forward() in training outside of a virtual rank's turn: this job has ",
                                     virtual_world_size(), " virtual ranks on ", get_world_size(),
                                     " processes; run forward() and backward() in a loop over "
                                     "virtual_ranks() or virtual_steps()"));
  }
  buffer_watch_.forward_begins(buffers_);
  reducer_->before_forward(at::GradMode::is_enabled() ? watch_.change() : std::nullopt);
  if (trains && reducer_->is_synchronised()) give_buffers();
}

// Collective. Called by a training forward that is averaged.
void DistributedDataParallelBase::give_buffers() {
  if (virtual_replica_) {
    const Acting acting(Purpose::BUFFERS, model_);
    return virtual_replica_->before_forward();
  }
  const auto buffers = broadcast_buffers_ ? tensors_of(distinct(buffers_)) : std::vector<at::Tensor>();
  if (!buffers.empty()) {
    const JoinRound round = Join::notify_join_context(*this, BUFFERS)->wait();
    const Acting acting(Purpose::BUFFERS, model_);
    broadcast_tensors(buffers, group_, round.newest_active);
  } else if (join_membership()->options().throw_on_early_termination) {
    Join::notify_join_context(*this, NOTHING)->wait();
  }
}

std::shared_ptr<JoinHook> DistributedDataParallelBase::join_hook(const JoinOptions& options) {
  if (virtual_replica_)
    DDP_WRAPPER.refuse(group_, "a Join is not possible with virtual ranks, whose loops are equally long");
  const auto parameters = tensors_of(distinct(parameters_));
  return std::make_shared<StandIn>(group_, reducer_, parameters, tensors_of(distinct(buffers_)), options);
}

bool DistributedDataParallelBase::counts_forwards(bool training) const {
  return training && at::GradMode::is_enabled() && reducer_->is_synchronised();
}

void DistributedDataParallelBase::after_forward(bool training, const OutputTensors& outputs) {
  if (!reducer_->wants_outputs()) return;
  if (!outputs.complete || outputs.tensors.empty()) return reducer_->note_outputs(std::nullopt);
  reducer_->note_outputs(outputs.tensors);
  if (training) reducer_->take_part_if_unreached();
}

void DistributedDataParallelBase::register_comm_hook(const std::string& name) {
  register_comm_hook(make_comm_hook(name));
}

void DistributedDataParallelBase::register_comm_hook(const std::string& name,
                                                     FunctionHook::Function function) {
  if (!function) DDP_WRAPPER.refuse("register_comm_hook() was given an empty function");
  register_comm_hook(std::make_shared<FunctionHook>(name, std::move(function)));
}

void DistributedDataParallelBase::register_comm_hook(std::shared_ptr<CommHook> hook) {
  if (!hook) DDP_WRAPPER.refuse("register_comm_hook() was given no hook");
  if (virtual_replica_) {
    DDP_WRAPPER.refuse(group_, lockstep::str("communication hook \"", printable(hook->describe()),
                                             "\" is not possible with virtual ranks: it would see sums of "
                                             "several ranks"));
  }
  verify_same_model(DDP_WRAPPER, describe_model({}, {}, "communication hook " + hook->describe()), group_);
  reducer_->register_comm_hook(std::move(hook));
}

std::shared_ptr<CommHook> DistributedDataParallelBase::comm_hook() const {
  return virtual_replica_ ? nullptr : reducer_->ask([](const auto& average) { return average.hook(); });
}

DistributedDataParallelStats DistributedDataParallelBase::stats() const {
  return reducer_->ask([](const GradientAverage& average) { return average.stats(); });
}

std::string DistributedDataParallelBase::bucket_table() const {
  return reducer_->ask([](const GradientAverage& average) { return average.table(); });
}

RankTimes DistributedDataParallelBase::compare_ranks() const {
  const StepTimes own = stats().last_step;
  const at::Tensor mine = at::empty({6}, at::kDouble);
  const std::array<double, 6> values = {own.between,       own.forward, own.backward,
                                        own.communication, own.exposed, own.waited};
  std::copy(values.begin(), values.end(), mine.mutable_data_ptr<double>());
  const Acting acting(Purpose::STEP_TIMES, model_);
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
    DDP_WRAPPER.refuse(lockstep::str(
        "no optimiser steps parameter \"", printable(named.first), "\": of ", stepped.size(),
        " tensors that the optimisers step, ", known, " are among the ", once.size(),
        " parameters of this model; build the optimiser from ddp.parameters(), after wrapping"));
  }
}

void DistributedDataParallelBase::check_buffers() const {
  if (const auto change = buffer_watch_.change(buffers_)) DDP_WRAPPER.refuse(*change);
}

std::vector<at::Tensor> DistributedDataParallelBase::parameters() const {
  return tensors_of(distinct(parameters_));
}

torch::OrderedDict<std::string, at::Tensor> DistributedDataParallelBase::named_parameters() const {
  torch::OrderedDict<std::string, at::Tensor> dict("parameter");
  for (const auto& [name, tensor] : distinct(parameters_)) dict.insert(name, tensor);
  return dict;
}

torch::OrderedDict<std::string, at::Tensor> DistributedDataParallelBase::named_buffers() const {
  torch::OrderedDict<std::string, at::Tensor> dict("buffer");
  for (const auto& [name, tensor] : distinct(buffers_)) dict.insert(name, tensor);
  return dict;
}

// NOLINTNEXTLINE(readability-make-member-function-const): it changes the gradients
void DistributedDataParallelBase::zero_grad(bool set_to_none) {
  for (const at::Tensor& parameter : tensors_of(distinct(parameters_))) {
    at::Tensor& grad = parameter.mutable_grad();
    if (!grad.defined()) continue;
    if (set_to_none) {
      grad.reset();
    } else {
      const at::NoGradGuard no_grad;
      grad.zero_();
    }
  }
}

void DistributedDataParallelBase::refuse_move(const std::optional<at::Device>& device,
                                              const std::optional<at::ScalarType>& dtype) const {
  lockstep::refuse_move(DDP_WRAPPER, parameters_, device, dtype);
  lockstep::refuse_move(DDP_WRAPPER, buffers_, device, dtype);
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
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;  // destination and source
  std::unordered_set<std::string> loaded;
  for (const auto& item : state) {
    std::string name = item.key();
    if (!own.contains(name) && name.starts_with(MODULE_PREFIX)) name.erase(0, MODULE_PREFIX.size());
    const at::Tensor* to = own.find(name);
    if (to == nullptr)
      DDP_WRAPPER.refuse(
          lockstep::str("the state has \"", printable(item.key()), "\", which the model has not"));
    if (to->sizes() != item.value().sizes()) {
      DDP_WRAPPER.refuse(lockstep::str("\"", printable(name), "\" is ", to->sizes(), " in the model but ",
                                       item.value().sizes(), " in the state"));
    }
    loaded.insert(name);
    copies.emplace_back(*to, item.value());
  }
  for (const auto& item : own) {
    if (!loaded.contains(item.key()))
      DDP_WRAPPER.refuse(lockstep::str("the state lacks \"", printable(item.key()), "\""));
  }
  const at::NoGradGuard no_grad;
  for (auto& [to, from] : copies) to.copy_(from);
}

}  // namespace lockstep
