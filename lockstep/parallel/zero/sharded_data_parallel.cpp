#include "lockstep/parallel/zero/sharded_data_parallel.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <unordered_map>
#include <unordered_set>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/job/job.h"
#include "lockstep/optim/clip_grad.h"
#include "lockstep/optim/group_of_each.h"
#include "lockstep/optim/model_part.h"
#include "lockstep/optim/step_kernels.h"
#include "lockstep/parallel/replicas/broadcast_tensors.h"
#include "lockstep/parallel/replicas/model_checks.h"
#include "lockstep/parallel/replicas/verify_models.h"
#include "lockstep/parallel/zero/zero_wrapper.h"
#include "lockstep/tensor/caching_allocator.h"
#include "lockstep/tensor/collectives.h"
#include "lockstep/tensor/meta_init.h"

namespace lockstep {
namespace {

NamedTensors trained_of(const NamedTensors& parameters, const NamedTensors& buffers,
                        const ProcessGroup& group) {
  NamedTensors trained = check_model(ZERO_WRAPPER, parameters, buffers, {}, {}, group);
  for (const auto& [name, tensor] : trained) {
    if (!tensor.is_complex() && optim::has_step_kernels(dtype_of(tensor.scalar_type()))) continue;
    ZERO_WRAPPER.refuse(group, lockstep::str("parameter ", in_quotes(name), " is ", tensor.scalar_type(),
                                             "; what is trained is float32, float64, float16 or bfloat16"));
  }
  return trained;
}

// A rank that cannot go on tells the others, which would otherwise wait for it.
template <typename Body> auto tell_others(const ProcessGroup& group, const Body& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    group.abort(lockstep::str("ShardedDataParallel, rank ", group.rank(), ": ", error.what()));
    throw;
  }
}

std::shared_ptr<ShardedStep> make_step(const NamedTensors& trained, const ProcessGroup& group,
                                       const std::string& model, const ShardedForm& form) {
  auto step = tell_others(group, [&] { return std::make_shared<ShardedStep>(trained, group, model, form); });
  if (const auto shared = step->gradients().first_shared())
    ZERO_WRAPPER.refuse(
        group, lockstep::str("another live wrapper has parameter ", in_quotes(trained[*shared].first),
                             ", too; one wrapper steps it"));
  return step;
}

}  // namespace

namespace zero {

void before_step(ShardedStep& step, bool by_parts) { step.begin(by_parts); }

void guard_step(ShardedStep& step, const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    step.fail(error.what());
    throw;
  }
}

void after_step(ShardedStep& step) { step.end(); }

NamedTensors masters_of(const ShardedStep& step, const std::vector<optim::ParameterShard>& shards) {
  NamedTensors masters;
  for (const optim::ParameterShard& shard : shards) {
    if (step.parameters().masters().is_wider(shard.tensor)) masters.emplace_back(shard.name, shard.tensor);
  }
  return masters;
}

std::vector<at::Tensor> tensors_of(const std::vector<optim::ParameterShard>& shards) {
  std::vector<at::Tensor> tensors;
  for (const optim::ParameterShard& shard : shards) tensors.push_back(shard.tensor);
  return tensors;
}

std::unordered_map<const void*, std::size_t> numbers_of(const ShardedStep& step) {
  std::unordered_map<const void*, std::size_t> numbers;
  for (std::size_t i = 0; i < step.parameters().parameters().size(); ++i)
    numbers[step.parameters().my_shard(i).unsafeGetTensorImpl()] = i;
  return numbers;
}

void refuse_offload() {
  ZERO_WRAPPER.refuse(
      "offload is for the optimisers of lockstep::optim; the state of libtorch's lies where libtorch puts "
      "it");
}

void refuse_to_save() {
  ZERO_WRAPPER.refuse(
      "a checkpoint of an optimiser of libtorch is not possible, because its state has no names of "
      "parameters: use the optimiser of that name in lockstep::optim");
}

}  // namespace zero

ShardedDataParallelBase::ShardedDataParallelBase(const torch::nn::Module& module, NamedTensors parameters,
                                                 NamedTensors buffers,
                                                 const ShardedDataParallelOptions& options)
    : group_(options.process_group ? *options.process_group : world()),
      parameters_(std::move(parameters)),
      buffers_(std::move(buffers)),
      broadcast_buffers_(options.broadcast_buffers),
      model_(name_of_model(module)),
      watch_(&module, parameters_) {
  group_.require_member("ShardedDataParallel");
  // First what needs all ranks, so that what is refused below is refused on all of them alike.
  verify_same_model(ZERO_WRAPPER, describe_model(parameters_, buffers_, zero::settings_of(options)), group_);
  zero::check(options, group_);
  trained_ = trained_of(parameters_, buffers_, group_);
  ShardedForm form = zero::form_of(options);
  const at::Device device = zero::device_for(options, trained_.front().second.device(), group_);
  form.parameters.device = device;
  if (is_initialized()) install_caching_allocator();
  std::vector<at::Tensor> others = tensors_of(distinct(buffers_));
  for (const auto& [name, tensor] : distinct(parameters_)) {
    if (!tensor.requires_grad()) others.push_back(tensor);
  }
  materialize(others);  // of meta_init(); rank 0's values come next
  for (at::Tensor& tensor : others) tensor.set_data(tensor.to(device));
  {
    const Acting acting(Purpose::FIRST_WEIGHTS, model_);
    broadcast_tensors(others, group_);
  }
  step_ = make_step(trained_, group_, model_, form);
}

// What a gather has failed with says more than what the model made of NaN.
void ShardedDataParallelBase::after_forward() { step_->parameters().end_forward(); }

void ShardedDataParallelBase::before_forward(bool training) {
  step_->refuse_torn();
  step_->parameters().rethrow();
  step_->gradients().renew();
  step_->parameters().begin_forward(at::GradMode::is_enabled());
  if (const auto change = step_->parameters().change()) ZERO_WRAPPER.refuse(group_, *change);
  if (!at::GradMode::is_enabled()) return;
  if (const auto change = watch_.change()) ZERO_WRAPPER.refuse(group_, *change);
  if (!training || !broadcast_buffers_ || buffers_.empty()) return;
  const Acting acting(Purpose::BUFFERS, model_);
  broadcast_tensors(tensors_of(distinct(buffers_)), group_);
}

zero::GroupedShards ShardedDataParallelBase::take_shards(const std::vector<std::vector<at::Tensor>>& named) {
  if (std::exchange(has_optimizer_, true))
    ZERO_WRAPPER.refuse(group_,
                        "optimizer() was called before; a model has one optimiser, with as many parameter "
                        "groups as it needs");
  const auto [group_of, problem] = optim::group_of_each(trained_, named);
  if (!problem.empty()) ZERO_WRAPPER.refuse(group_, "the parameter groups of optimizer() " + problem);
  zero::GroupedShards shards(named.size() + 1);
  for (std::size_t i = 0; i < trained_.size(); ++i) {
    const auto& [name, tensor] = trained_[i];
    shards[group_of[i]].push_back({.name = name,
                                   .shape = tensor.sizes().vec(),
                                   .offset = static_cast<std::int64_t>(step_->parameters().my_offset(i)),
                                   .tensor = step_->parameters().my_shard(i),
                                   .parameter = tensor});
  }
  return shards;
}

double ShardedDataParallelBase::clip_grad_norm_(double max_norm, double norm_type, bool error_if_nonfinite) {
  if (!(max_norm >= 0))
    ZERO_WRAPPER.refuse(group_, lockstep::str("clip_grad_norm_: max_norm is ", max_norm, ", not 0 or more"));
  const std::string why = optim::why_not_the_models_norm(lockstep::tensors_of(trained_));
  if (!why.empty()) ZERO_WRAPPER.refuse(group_, lockstep::str("clip_grad_norm_: ", why));
  step_->average();
  std::vector<at::Tensor> shards;
  for (std::size_t i = 0; i < trained_.size(); ++i) shards.push_back(step_->parameters().my_shard(i));
  if (norm_type != 2)
    return lockstep::clip_grad_norm_(shards, max_norm, norm_type, error_if_nonfinite, NormReducer(group_));
  const double norm = std::sqrt(step_->square_norm());
  if (error_if_nonfinite && !std::isfinite(norm))
    ZERO_WRAPPER.refuse(group_, lockstep::str("clip_grad_norm_: the norm of the gradients is ", norm,
                                              ". error_if_nonfinite = false clips by it all the same"));
  const double factor = max_norm / (norm + 1e-6);  // as clip_grads_with_norm_
  if (!(factor >= 1)) step_->scale(factor);        // also for NaN
  return norm;
}

std::vector<std::pair<std::string, double>> ShardedDataParallelBase::square_norms() {
  step_->average();
  const std::vector<double> norms = step_->square_norms();
  std::vector<std::pair<std::string, double>> by_name;
  for (std::size_t i = 0; i < trained_.size(); ++i) by_name.emplace_back(trained_[i].first, norms[i]);
  return by_name;
}

NamedTensors ShardedDataParallelBase::average_gradients() {
  step_->average();
  const at::NoGradGuard no_grad;
  NamedTensors averages;
  const Acting acting(Purpose::SHARDED_STEP, model_);
  for (std::size_t i = 0; i < trained_.size(); ++i) {
    const auto& [name, parameter] = trained_[i];
    const at::Tensor& part = step_->parameters().my_shard(i).grad();
    averages.emplace_back(name, at::Tensor());
    if (!part.defined()) continue;
    const at::Tensor whole = at::zeros({parameter.numel()}, part.options());
    whole.narrow(0, static_cast<std::int64_t>(step_->parameters().my_offset(i)), part.numel()).copy_(part);
    all_reduce(whole, ReduceOp::SUM, group_);
    averages.back().second = gradient_alias(whole, parameter.sizes(), parameter.strides(), 0);
  }
  return averages;
}

void ShardedDataParallelBase::zero_grad() { step_->drop(); }

void ShardedDataParallelBase::write_parameters(const std::function<void()>& write) {
  step_->write([&] {
    const at::NoGradGuard no_grad;
    tell_others(group_, write);
  });
}

void ShardedDataParallelBase::read_parameters(const std::function<void()>& read) {
  step_->parameters().read(read);
}

torch::OrderedDict<std::string, at::Tensor> ShardedDataParallelBase::state_dict() const {
  if (step_->parameters().copies() != SharedParameters::Copies::PARTS) return tensors();
  torch::OrderedDict<std::string, at::Tensor> dict("tensor");
  step_->parameters().read([&] {
    for (const auto& item : tensors()) dict.insert(item.key(), item.value().detach().clone());
  });
  return dict;
}

torch::OrderedDict<std::string, at::Tensor> ShardedDataParallelBase::tensors() const {
  torch::OrderedDict<std::string, at::Tensor> dict("tensor");
  for (const auto& [name, tensor] : parameters_) dict.insert(name, tensor);
  for (const auto& [name, tensor] : buffers_) dict.insert(name, tensor);
  return dict;
}

void ShardedDataParallelBase::load_state_dict(const torch::OrderedDict<std::string, at::Tensor>& state) {
  const auto own = tensors();
  for (const auto& item : own) {
    const at::Tensor* const found = state.find(item.key());
    if (found == nullptr)
      ZERO_WRAPPER.refuse(group_, lockstep::str("load_state_dict: the state lacks ", in_quotes(item.key())));
    if (found->sizes() != item.value().sizes())
      ZERO_WRAPPER.refuse(
          group_, lockstep::str("load_state_dict: ", in_quotes(item.key()), " is ", item.value().sizes(),
                                " in the model but ", found->sizes(), " in the state"));
  }
  for (const auto& item : state) {
    if (!own.contains(item.key()))
      ZERO_WRAPPER.refuse(group_, lockstep::str("load_state_dict: the state has ", in_quotes(item.key()),
                                                ", which the model has not"));
  }
  std::unordered_set<const void*> written;
  for (const auto& [name, tensor] : trained_) written.insert(tensor.unsafeGetTensorImpl());
  const at::NoGradGuard no_grad;
  const auto copy = [&](bool trained) {
    for (const auto& item : own) {
      at::Tensor to = item.value();
      if (written.contains(to.unsafeGetTensorImpl()) == trained) to.copy_(state[item.key()]);
    }
  };
  copy(/*trained=*/false);
  write_parameters([&] { copy(/*trained=*/true); });
}

std::shared_ptr<CheckpointItem> ShardedDataParallelBase::checkpoint_item() {
  const auto loaded = [step = step_] { step->parameters().mark_written(); };
  if (step_->parameters().copies() != SharedParameters::Copies::PARTS)
    return zero::common_tensors_item(parameters_, buffers_, loaded);
  std::vector<optim::ParameterShard> parts;
  NamedTensors whole;
  for (const auto& [name, tensor] : parameters_) {
    const auto is_it = [&held = tensor](const auto& trained) { return trained.second.is_same(held); };
    const auto found = std::find_if(trained_.begin(), trained_.end(), is_it);
    const auto number = static_cast<std::size_t>(found - trained_.begin());
    if (found != trained_.end() && step_->parameters().is_parted(number)) {
      parts.push_back({.name = name,
                       .shape = tensor.sizes().vec(),
                       .offset = static_cast<std::int64_t>(step_->parameters().my_offset(number)),
                       .tensor = step_->parameters().my_part(number)});
    } else {
      whole.emplace_back(name, tensor);
    }
  }
  const auto begins = [step = step_] { step->parameters().wait_for_copies(); };
  return zero::parted_tensors_item(std::move(parts), std::move(whole), buffers_, {begins, loaded});
}

std::vector<at::Tensor> ShardedDataParallelBase::parameters() const {
  return tensors_of(distinct(parameters_));
}

torch::OrderedDict<std::string, at::Tensor> ShardedDataParallelBase::named_parameters() const {
  torch::OrderedDict<std::string, at::Tensor> dict("parameter");
  for (const auto& [name, tensor] : distinct(parameters_)) dict.insert(name, tensor);
  return dict;
}

ShardedMemory ShardedDataParallelBase::memory() const {
  const int sharers = step_->parameters().sharers();
  return {.parameters = static_cast<double>(step_->parameters().bytes()) / sharers,
          .gradients = static_cast<double>(step_->gradients().bytes()),
          .masters = static_cast<double>(step_->parameters().masters().bytes()),
          .is_shared = sharers > 1};
}

std::string ShardedDataParallelBase::shard_table() const { return to_string(step_->plan()); }

}  // namespace lockstep
