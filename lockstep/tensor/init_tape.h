// InitTape: the operations that gave the tensors of a model their first values, written down to be carried
// out later, for one tensor at a time.
//
//   tape.record({.op = op, .arguments = arguments, .results = {meta}, .is_random = false});
//   tape.fill(place, meta);        // what the tensor would hold, into memory that the caller has
//
// A slot stands for a storage that does not exist. Tensors of the tape are on the meta device, so they have
// a shape and no memory; which slot a tensor belongs to is seen from its storage. Views share a slot.
//
// Replay    of a slot carries out the calls on which its value depends, and no others, in the order of the
//           tape. What no later one of them reads is freed at once. Values that a later call overwrites
//           whole (a normal_() after a uniform_()) are not computed.
// Random    numbers: record() carries out a random call at once, on memory that it frees again, so that the
//           generator is in each moment where an ordinary construction would have it. The state from before
//           is kept, and a replay begins with it and leaves the generator as it was.
// Threads   record() is for one thread. Then any number may replay.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace lockstep {

// The same value with other tensors in it; undefined ones stay.
c10::IValue map_tensors(const c10::IValue& value, const std::function<at::Tensor(const at::Tensor&)>& map);
// In order; undefined ones are left out.
std::vector<at::Tensor> tensors_in(const std::vector<c10::IValue>& values);
// Of an argument of tensors that the operator writes to.
bool is_written(const c10::OperatorHandle& op, std::size_t argument);

class InitTape {
 public:
  using Slot = std::size_t;
  struct Call {
    c10::OperatorHandle op;
    std::vector<c10::IValue> arguments;  // tensors of the tape, and others, which are constants
    std::vector<at::Tensor> results;     // as the call returns them; undefined where no new storage is made
    bool is_random = false;
    // Filled in by record():
    c10::ScalarType default_dtype = c10::ScalarType::Float;
    std::optional<at::Tensor> random_state = {};
    std::vector<Slot> reads = {};
    std::vector<Slot> writes = {};
    std::optional<Slot> overwritten = {};  // what was in it before does not count
  };

  // None: a tensor that is not of the tape.
  std::optional<Slot> slot_of(const at::Tensor& meta) const;
  Slot add_slot(const at::Storage& meta);
  const at::Storage& storage_of(Slot slot) const { return slots_[slot]; }

  void record(Call call);
  // Carries out a call on the values of now, without recording it. Returns what it returns.
  std::vector<c10::IValue> evaluate(const c10::OperatorHandle& op,
                                    const std::vector<c10::IValue>& arguments) const;
  // A tensor of its own, of the shape and strides of `meta`.
  at::Tensor value_of(const at::Tensor& meta) const;
  // A view of what value_of() gave for another tensor of the same slot.
  at::Tensor view_of(const at::Tensor& value, const at::Tensor& meta) const;
  // `place` is contiguous and has the shape and dtype of `meta`.
  void fill(const at::Tensor& place, const at::Tensor& meta) const;

 private:
  using Values = std::unordered_map<Slot, at::Storage>;

  void find_slots(Call& call) const;
  at::Tensor real(const at::Tensor& meta, Values& values) const;
  void replay(std::unordered_set<Slot> needed, Values& values) const;
  void run(const Call& call, Values& values) const;

  std::vector<at::Storage> slots_;  // on the meta device
  std::unordered_map<const void*, Slot> slot_by_storage_;
  std::vector<Call> calls_;
};

}  // namespace lockstep
