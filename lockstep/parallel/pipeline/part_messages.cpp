#include "lockstep/parallel/pipeline/part_messages.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/purpose.h"
#include "lockstep/tensor/collectives.h"
#include "lockstep/tensor/point_to_point.h"

namespace lockstep {
namespace {

constexpr int SPECS_TAG = PartMessages::TAG + 1;
constexpr std::int64_t NO_VALUES = -1;  // in place of the number of words of specs

bool can_travel(const at::Tensor& tensor) {
  return !tensor.defined() || (tensor.device().is_cpu() && tensor.layout() == at::kStrided);
}

// Adds the time that it lives.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds) {}
  ~Stopwatch() {
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& seconds_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

void PartMessages::begin(StepForm form) {
  form_ = std::move(form);
  arriving_.clear();
  seconds_waited_ = 0;
}

PartMessages::FormKey PartMessages::form_key(int micro_batch, int from_part) const {
  return {from_part, form_.rows.at(static_cast<std::size_t>(micro_batch)), form_.signature,
          form_.is_training};
}

const ValueSpecs* PartMessages::agreed(int micro_batch, int from) const {
  const auto found = agreed_.find(form_key(micro_batch, from));
  return found == agreed_.end() ? nullptr : &found->second;
}

void PartMessages::check(int micro_batch, int from, const NamedTensors& values, const ValueSpecs& specs,
                         bool with_gradients) const {
  const auto refuse = [&](const std::string& reason) {
    throw InvalidArgument(lockstep::str("Pipeline on group \"", group_.name(), "\", rank ", group_.rank(),
                                        " of ", group_.size(), ": stage ", from, " gave ", reason));
  };
  for (std::size_t i = 0; i < values.size(); ++i) {
    const at::Tensor& tensor = values[i].second;
    if (!can_travel(tensor))
      refuse(lockstep::str("value ", i, " on ", tensor.device(),
                           "; only dense tensors on the CPU travel to the next stage"));
    if (tensor.defined()) static_cast<void>(dtype_of(tensor.scalar_type()));
  }
  const ValueSpecs* const before = agreed(micro_batch, from);
  if (before == nullptr) return;
  if (const auto change = first_difference(*before, specs, with_gradients)) {
    refuse(str(*change, " for micro-batches of ", form_.rows.at(static_cast<std::size_t>(micro_batch)),
               " rows. A stage gives the same shapes and dtypes for a batch of the same shape; if frozen "
               "parameters or layers changed, make a new Pipeline"));
  }
}

void PartMessages::start_send(const at::Tensor& tensor, int to_part, int tag) {
  const Acting acting(Purpose::PIPELINE);
  if (tensor.numel() > 0)
    sending_.push_back(isend(tensor.contiguous(), GroupRank{shape_.rank_of(to_part)}, group_, tag));
}

void PartMessages::start_receive(Arriving& arriving, const at::Tensor& tensor, int from_part) const {
  const Acting acting(Purpose::PIPELINE);
  if (tensor.numel() > 0)
    arriving.works.push_back(irecv(tensor, GroupRank{shape_.rank_of(from_part)}, group_, TAG));
}

void PartMessages::send_specs(int to_part, const std::optional<ValueSpecs>& specs) {
  const std::vector<std::int64_t> words = specs ? words_of(*specs) : std::vector<std::int64_t>();
  const std::int64_t count = specs ? static_cast<std::int64_t>(words.size()) : NO_VALUES;
  start_send(at::tensor({count}, at::kLong), to_part, SPECS_TAG);
  if (specs) start_send(at::tensor(words, at::kLong), to_part, SPECS_TAG);
}

std::optional<ValueSpecs> PartMessages::receive_specs(int from_part) const {
  const Acting acting(Purpose::PIPELINE);
  const GroupRank sender = {shape_.rank_of(from_part)};
  const at::Tensor count = at::empty({1}, at::kLong);
  irecv(count, sender, group_, SPECS_TAG).wait();
  if (count.item<std::int64_t>() == NO_VALUES) return std::nullopt;
  const at::Tensor words = at::empty({count.item<std::int64_t>()}, at::kLong);
  irecv(words, sender, group_, SPECS_TAG).wait();
  const auto* const data = words.const_data_ptr<std::int64_t>();
  return specs_of_words({data, data + words.numel()});
}

void PartMessages::send_values(const std::vector<at::Tensor>& values, int to_part) {
  for (const at::Tensor& value : values)
    if (value.defined()) start_send(lent_.carries(value.nbytes()) ? lent_.lend(value) : value, to_part, TAG);
}

void PartMessages::send(const PipelineMessage& message, const std::optional<NamedTensors>& values,
                        const ValueSpecs& specs) {
  drop_sent();
  const FormKey key = form_key(message.micro_batch, message.from_part);
  if (!agreed_.contains(key)) {
    send_specs(message.to_part, values ? std::optional(specs) : std::nullopt);
    if (!values) return;
    agreed_[key] = specs;
  }
  send_values(tensors_of(values ? *values : zero_values(agreed_.at(key))), message.to_part);
}

void PartMessages::send(const PipelineMessage& message,
                        const std::optional<std::vector<at::Tensor>>& gradients) {
  drop_sent();
  const ValueSpecs* const specs = agreed(message.micro_batch, message.to_part);
  if (specs == nullptr) return;  // the receiver has no specs either: the activation did not come
  send_values(gradients ? *gradients : tensors_of(zero_values(gradient_specs(*specs))), message.to_part);
}

void PartMessages::put(const PipelineMessage& message, const NamedTensors& values, const ValueSpecs& specs) {
  agreed_.try_emplace(form_key(message.micro_batch, message.from_part), specs);
  arriving_[message_key(message)].values = values;
}

void PartMessages::put(const PipelineMessage& message, const std::vector<at::Tensor>& gradients) {
  NamedTensors& values = arriving_[message_key(message)].values.emplace();
  for (const at::Tensor& gradient : gradients) values.emplace_back("", gradient);
}

void PartMessages::receive(const PipelineMessage& message) {
  const bool is_activation = message.kind == PipelineMessageKind::ACTIVATION;
  const int from = is_activation ? message.from_part : message.to_part;  // of the activation
  const FormKey key = form_key(message.micro_batch, from);
  Arriving& arriving = arriving_[message_key(message)];
  if (!agreed_.contains(key)) {
    if (!is_activation) return;
    const Stopwatch watch(seconds_waited_);
    const auto specs = receive_specs(message.from_part);
    if (!specs) return;
    agreed_[key] = *specs;
  }
  NamedTensors& values = arriving.values.emplace();
  for (const ValueSpec& spec : is_activation ? agreed_.at(key) : gradient_specs(agreed_.at(key))) {
    const bool is_lent = lent_.carries(bytes_of(spec));
    if (is_lent) arriving.lent.emplace_back(values.size(), spec);
    values.emplace_back(spec.skip, is_lent ? at::empty({1}, at::kLong) : empty_value(spec));
    if (spec.is_defined) start_receive(arriving, values.back().second, message.from_part);
  }
}

std::optional<NamedTensors> PartMessages::take(const PipelineMessage& message) {
  const auto found = arriving_.find(message_key(message));
  if (found == arriving_.end()) return std::nullopt;
  Arriving arriving = std::move(found->second);
  arriving_.erase(found);
  {
    const Stopwatch watch(seconds_waited_);
    for (Work& work : arriving.works) work.wait();
  }
  for (const auto& [i, spec] : arriving.lent) {
    at::Tensor& value = (*arriving.values)[i].second;
    value = lent_.hold(value, spec, shape_.rank_of(message.from_part));
  }
  if (arriving.values && message.kind == PipelineMessageKind::ACTIVATION && form_.is_training) {
    const ValueSpecs& specs = *agreed(message.micro_batch, message.from_part);
    for (std::size_t i = 0; i < specs.size(); ++i)
      if (specs[i].requires_grad) (*arriving.values)[i].second.set_requires_grad(true);
  }
  return std::move(arriving.values);
}

void PartMessages::drop_sent() {
  std::erase_if(sending_, [](const Work& work) { return work.is_success(); });
}

void PartMessages::finish() {
  const Stopwatch watch(seconds_waited_);
  for (Work& work : sending_) work.wait();
  sending_.clear();
}

}  // namespace lockstep
