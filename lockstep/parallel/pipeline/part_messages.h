// PartMessages: carries the values and gradients of a pipeline between the ranks that hold two neighbouring
// parts of the model. Used by pipeline_step.h, which calls it in the order of a PipelineProgram
// (schedules/pipeline_messages.h), so that no two ranks wait for each other.
//
//   messages.begin({.rows = {2, 2}, .signature = signature_of(inputs), .is_training = true});
//   messages.send(message, values);              // starts
//   messages.receive(message);                   // starts
//   auto arrived = messages.take(message);       // waits
//   messages.finish();                           // waits until all that was sent has left
//
// Agreement   A micro-batch has a form: its rows, the signature of the batch, and whether gradients flow. The
//             first message of each form between two parts is preceded by its ValueSpecs; both sides keep
//             them. check() refuses an output of a known form that has other specs.
// Failure     A rank whose part failed still sends and receives everything, so that no rank waits. A message
//             whose values are missing is zeros if its specs are known. If not, its specs say so, nothing
//             follows them, and take() returns nothing.
// Lent        Over shared memory a large value lies in the sender's segment, and its message says where
//             (lent_values.h).
// Same rank   put() hands a value to the next part where one rank has both.
// Tags        TAG and TAG + 1 of the group are the pipeline's.
// Throws      the errors of send and recv; the group is closed then.
#pragma once

#include <ATen/core/Tensor.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/pipeline/lent_values.h"
#include "lockstep/parallel/pipeline/value_specs.h"
#include "lockstep/schedules/pipeline_messages.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep {

// The micro-batches of one step.
struct StepForm {
  std::vector<std::int64_t> rows;  // by micro-batch
  std::uint64_t signature = 0;
  bool is_training = true;
};

class PartMessages {
 public:
  static constexpr int TAG = 20560;

  PartMessages(ProcessGroup group, const PipelineShape& shape)
      : group_(std::move(group)), shape_(shape), lent_(group_) {}

  void begin(StepForm form);

  // The specs of the values that part `from` passes on, if they are agreed.
  const ValueSpecs* agreed(int micro_batch, int from) const;
  // Throws InvalidArgument for values that cannot travel, or differ from what was agreed.
  void check(int micro_batch, int from, const NamedTensors& values, const ValueSpecs& specs,
             bool with_gradients) const;

  // Activations. `specs` are complete if none are agreed.
  void send(const PipelineMessage& message, const std::optional<NamedTensors>& values,
            const ValueSpecs& specs);
  // Gradients, of the values that require one.
  void send(const PipelineMessage& message, const std::optional<std::vector<at::Tensor>>& gradients);
  void put(const PipelineMessage& message, const NamedTensors& values, const ValueSpecs& specs);
  void put(const PipelineMessage& message, const std::vector<at::Tensor>& gradients);

  void receive(const PipelineMessage& message);
  // Values are leaves that require gradients as agreed. Gradients come without names.
  std::optional<NamedTensors> take(const PipelineMessage& message);
  void finish();

  double seconds_waited() const { return seconds_waited_; }

 private:
  struct FormKey {
    int from_part;
    std::int64_t rows;
    std::uint64_t signature;
    bool is_training;
    auto operator<=>(const FormKey&) const = default;
  };
  struct MessageKey {
    PipelineMessageKind kind;
    int micro_batch;
    int to_part;
    auto operator<=>(const MessageKey&) const = default;
  };
  struct Arriving {
    std::optional<NamedTensors> values;  // of a lent value its place
    std::vector<std::pair<std::size_t, ValueSpec>> lent;
    std::vector<Work> works;
  };

  FormKey form_key(int micro_batch, int from_part) const;
  static MessageKey message_key(const PipelineMessage& message) {
    return {message.kind, message.micro_batch, message.to_part};
  }
  void start_send(const at::Tensor& tensor, int to_part, int tag);
  void send_values(const std::vector<at::Tensor>& values, int to_part);
  void start_receive(Arriving& arriving, const at::Tensor& tensor, int from_part) const;
  void send_specs(int to_part, const std::optional<ValueSpecs>& specs);
  std::optional<ValueSpecs> receive_specs(int from_part) const;
  void drop_sent();

  const ProcessGroup group_;
  const PipelineShape shape_;
  const LentValues lent_;
  StepForm form_;
  std::map<FormKey, ValueSpecs> agreed_;
  std::map<MessageKey, Arriving> arriving_;
  std::vector<Work> sending_;
  double seconds_waited_ = 0;
};

}  // namespace lockstep
