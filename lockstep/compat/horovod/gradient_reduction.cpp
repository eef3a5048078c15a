#include "lockstep/compat/horovod/gradient_reduction.h"

#include <ATen/Functions.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::compat::horovod {

GradientReduction::GradientReduction(const NamedTensors& parameters,
                                     const DistributedOptimizerOptions& options)
    : parameters_(parameters),
      options_(options),
      passes_(options.backward_passes_per_step),
      left_(parameters.size(), passes_),
      unit_of_(parameters.size()),
      hooks_(tensors_of(parameters),
             [this](std::size_t parameter, const at::Tensor& /*incoming*/) { on_gradient(parameter); }) {
  make_units();
}

void GradientReduction::make_units() {
  std::vector<bool> is_grouped(parameters_.size(), false);
  const auto add_group = [&](std::vector<std::size_t> members) {
    for (const std::size_t member : members) {
      if (is_grouped[member])
        throw InvalidArgument(str("DistributedOptimizer: ", parameters_[member].first, " is in two groups"));
      is_grouped[member] = true;
    }
    if (!members.empty()) units_.push_back({str("group.", units_.size()), std::move(members)});
  };
  for (const auto& names : options_.groups) {
    std::vector<std::size_t> members;
    for (const std::string& name : names) {
      const auto found = std::find_if(parameters_.begin(), parameters_.end(),
                                      [&](const auto& one) { return one.first == name; });
      if (found == parameters_.end())
        throw InvalidArgument(str("DistributedOptimizer: a group has no parameter ", in_quotes(name)));
      members.push_back(static_cast<std::size_t>(found - parameters_.begin()));
    }
    add_group(std::move(members));
  }
  const auto parts = std::min(static_cast<std::size_t>(options_.num_groups), parameters_.size());
  for (std::size_t part = 0; part < parts && options_.groups.empty(); ++part) {
    std::vector<std::size_t> members;
    for (std::size_t i = parameters_.size() * part / parts; i < parameters_.size() * (part + 1) / parts; ++i)
      members.push_back(i);
    add_group(std::move(members));
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!is_grouped[i]) units_.push_back({parameters_[i].first, {i}});
  }
  for (std::size_t u = 0; u < units_.size(); ++u) {
    for (const std::size_t member : units_[u].members) unit_of_[member] = u;
  }
}

void GradientReduction::on_gradient(std::size_t parameter) {
  const std::lock_guard lock(mutex_);
  if (left_[parameter] <= 0)
    throw InvalidArgument(
        str("DistributedOptimizer: ", parameters_[parameter].first, " got a gradient more than ", passes_,
            " times before step(); raise backward_passes_per_step to accumulate gradients"));
  if (--left_[parameter] == 0) make_ready(parameter);
}

void GradientReduction::make_ready(std::size_t parameter) {
  const at::Tensor& tensor = parameters_[parameter].second;
  if (!tensor.grad().defined()) tensor.mutable_grad() = at::zeros_like(tensor);
  if (tensor.grad().is_sparse() && options_.sparse_as_dense) tensor.mutable_grad() = tensor.grad().to_dense();
  Unit& unit = units_[unit_of_[parameter]];
  if (++unit.ready == unit.members.size()) send(unit);
}

ReduceOptions GradientReduction::reduce_options(const std::string& name) const {
  ReduceOptions made{.name = name, .op = options_.op, .process_set = options_.process_set};
  if (const double f = options_.gradient_predivide_factor; f != 1.0) {
    made.op = Sum;
    made.prescale_factor = 1.0 / f;
    made.postscale_factor = f / options_.process_set.size();
  }
  return made;
}

void GradientReduction::send(Unit& unit) {
  unit.ready = 0;
  if (parameters_[unit.members.front()].second.grad().is_sparse())
    return under_way_.push_back(send_sparse(unit));
  UnderWay made{.unit = &unit, .sent = {}, .handles = {}};
  for (const std::size_t member : unit.members) {
    const at::Tensor& gradient = parameters_[member].second.grad();
    const bool is_small = options_.compression == Compression::fp16 && gradient.is_floating_point();
    made.sent.push_back(is_small ? gradient.detach().to(at::kHalf) : gradient.detach());
  }
  const ReduceOptions options = reduce_options(unit.name);
  made.handles.push_back(made.sent.size() == 1 ? allreduce_async_(made.sent.front(), options)
                                               : grouped_allreduce_async_(made.sent, options));
  under_way_.push_back(std::move(made));
}

// Indices and values of all ranks are gathered.
GradientReduction::UnderWay GradientReduction::send_sparse(const Unit& unit) const {
  if (unit.members.size() > 1)
    throw InvalidArgument(str("DistributedOptimizer: ", unit.name,
                              " has a sparse gradient, which cannot be in a group; set "
                              "sparse_as_dense"));
  const at::Tensor gradient = parameters_[unit.members.front()].second.grad().coalesce();
  UnderWay made{.unit = &unit, .sent = {}, .handles = {}};
  for (const auto& [part, tensor] :
       {std::pair("indices", gradient.indices().t().contiguous()), std::pair("values", gradient.values())})
    made.handles.push_back(
        allgather_async(tensor, {.name = unit.name + "." + part, .process_set = options_.process_set}));
  return made;
}

void GradientReduction::finish(UnderWay& done) const {
  std::vector<at::Tensor> results;
  for (Handle& handle : done.handles) {
    for (at::Tensor& tensor : handle.synchronize()) results.push_back(std::move(tensor));
  }
  if (done.sent.empty()) {
    const at::Tensor& parameter = parameters_[done.unit->members.front()].second;
    const at::Tensor values = options_.op == Average ? results[1] / options_.process_set.size() : results[1];
    parameter.mutable_grad() =
        at::_sparse_coo_tensor_unsafe(results[0].t().clone(), values.clone(), parameter.sizes()).coalesce();
    return;
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    const at::Tensor gradient = parameters_[done.unit->members[i]].second.grad().detach();
    if (results[i].const_data_ptr() != gradient.const_data_ptr()) gradient.copy_(results[i]);
  }
}

void GradientReduction::synchronize() {
  std::vector<UnderWay> started;
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (left_[i] > 0) make_ready(i);
    }
    started.swap(under_way_);
    std::fill(left_.begin(), left_.end(), passes_);
  }
  for (UnderWay& one : started) finish(one);
}

bool GradientReduction::is_under_way() {
  const std::lock_guard lock(mutex_);
  return !under_way_.empty();
}

void GradientReduction::set_passes(int passes) {
  const std::lock_guard lock(mutex_);
  passes_ = passes;
  std::fill(left_.begin(), left_.end(), passes);
}

}  // namespace lockstep::compat::horovod
