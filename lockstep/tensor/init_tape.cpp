#include "lockstep/tensor/init_tape.h"

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/core/List.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <malloc.h>

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/os/block_cache.h"

namespace lockstep {
namespace {

at::Generator generator_of(const std::vector<c10::IValue>& arguments) {
  for (const c10::IValue& argument : arguments) {
    if (argument.isGenerator()) return argument.toGenerator();
  }
  return at::globalContext().defaultGenerator(at::kCPU);
}

at::Tensor state_of(at::Generator generator) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void set_state(at::Generator generator, const at::Tensor& state) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

// A generator in an earlier state, for as long as this lives.
class EarlierState {
 public:
  EarlierState(at::Generator generator, const at::Tensor& state)
      : generator_(std::move(generator)), now_(state_of(generator_)) {
    set_state(generator_, state);
  }
  ~EarlierState() { set_state(generator_, now_); }
  EarlierState(const EarlierState&) = delete;
  EarlierState& operator=(const EarlierState&) = delete;

 private:
  const at::Generator generator_;
  const at::Tensor now_;
};

class DefaultDtype {
 public:
  explicit DefaultDtype(c10::ScalarType dtype) : before_(c10::get_default_dtype()) {
    c10::set_default_dtype(c10::scalarTypeToTypeMeta(dtype));
  }
  ~DefaultDtype() { c10::set_default_dtype(before_); }
  DefaultDtype(const DefaultDtype&) = delete;
  DefaultDtype& operator=(const DefaultDtype&) = delete;

 private:
  const caffe2::TypeMeta before_;
};

bool is_one_of(const std::string& name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Gives memory of any content, so that a replay needs no call for it.
bool makes_nothing(const InitTape::Call& call) { return call.op.operator_name().name == "aten::empty"; }

// Writes to each element of its first argument and reads none of them.
bool is_filler(const c10::OperatorHandle& op) {
  return is_one_of(op.operator_name().name,
                   {"aten::fill_", "aten::zero_", "aten::uniform_", "aten::normal_", "aten::copy_"});
}

// Memory that goes back to the kernel when it is freed. Where small allocations come between, malloc would
// keep what is freed in pieces that the next tensor does not fit into, and the peak would be the whole model.
BlockCache& scratch() {
  static auto* const cache = new BlockCache(/*cap=*/0);  // outlives the last tensor in it
  return *cache;
}
void free_scratch(void* block) { scratch().free(block); }

at::Storage scratch_storage(std::size_t bytes) {
  void* const block = scratch().allocate(std::max<std::size_t>(bytes, 1));
  return {c10::Storage::use_byte_size_t(), bytes, at::DataPtr(block, block, &free_scratch, at::kCPU), nullptr,
          /*resizable=*/false};
}

// Of the calls that make their results themselves: the same for malloc's memory.
constexpr std::size_t TRIMMED_BYTES = std::size_t{1} << 20U;
void trim_after(const std::vector<at::Tensor>& results) {
  std::size_t bytes = 0;
  for (const at::Tensor& result : results) bytes += result.defined() ? result.nbytes() : 0;
  if (bytes >= TRIMMED_BYTES) malloc_trim(0);
}

bool covers(const at::Tensor& meta, const at::Storage& storage) {
  return meta.is_contiguous() && meta.nbytes() == storage.nbytes();
}

void push_once(std::vector<InitTape::Slot>& slots, InitTape::Slot slot) {
  if (std::find(slots.begin(), slots.end(), slot) == slots.end()) slots.push_back(slot);
}

}  // namespace

c10::IValue map_tensors(const c10::IValue& value, const std::function<at::Tensor(const at::Tensor&)>& map) {
  if (value.isTensor()) return value.toTensor().defined() ? c10::IValue(map(value.toTensor())) : value;
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(map(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
      list.push_back(tensor && tensor->defined() ? std::optional<at::Tensor>(map(*tensor)) : tensor);
    return list;
  }
  return value;
}

std::vector<at::Tensor> tensors_in(const std::vector<c10::IValue>& values) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& value : values) {
    map_tensors(value, [&tensors](const at::Tensor& tensor) {
      tensors.push_back(tensor);
      return tensor;
    });
  }
  return tensors;
}

bool is_written(const c10::OperatorHandle& op, std::size_t argument) {
  const c10::AliasInfo* const alias = op.schema().arguments()[argument].alias_info();
  return alias != nullptr && alias->isWrite();
}

std::optional<InitTape::Slot> InitTape::slot_of(const at::Tensor& meta) const {
  if (!meta.has_storage()) return std::nullopt;
  const auto found = slot_by_storage_.find(meta.storage().unsafeGetStorageImpl());
  return found == slot_by_storage_.end() ? std::nullopt : std::optional<Slot>(found->second);
}

InitTape::Slot InitTape::add_slot(const at::Storage& meta) {
  slots_.push_back(meta);
  slot_by_storage_.emplace(meta.unsafeGetStorageImpl(), slots_.size() - 1);
  return slots_.size() - 1;
}

void InitTape::find_slots(Call& call) const {
  for (std::size_t i = 0; i < call.arguments.size(); ++i) {
    for (const at::Tensor& tensor : tensors_in({call.arguments[i]})) {
      const std::optional<Slot> slot = slot_of(tensor);
      if (!slot) continue;
      if (is_written(call.op, i)) push_once(call.writes, *slot);
      const bool is_filled = i == 0 && is_filler(call.op) && covers(tensor, slots_[*slot]);
      if (is_filled) {
        call.overwritten = slot;
      } else {
        push_once(call.reads, *slot);
      }
    }
  }
  for (const at::Tensor& result : call.results) {
    if (result.defined()) push_once(call.writes, slot_of(result).value());
  }
  // A copy of a part of it to itself.
  if (call.overwritten && std::count(call.reads.begin(), call.reads.end(), *call.overwritten) != 0)
    call.overwritten.reset();
}

void InitTape::record(Call call) {
  call.default_dtype = c10::typeMetaToScalarType(c10::get_default_dtype());
  find_slots(call);
  if (call.is_random) {
    call.random_state = state_of(generator_of(call.arguments));
    Values values;
    replay({call.reads.begin(), call.reads.end()}, values);
    run(call, values);
    values.clear();
    trim_after(call.results);
  }
  calls_.push_back(std::move(call));
}

std::vector<c10::IValue> InitTape::evaluate(const c10::OperatorHandle& op,
                                            const std::vector<c10::IValue>& arguments) const {
  const at::NoGradGuard no_grad;
  std::unordered_set<Slot> needed;
  for (const at::Tensor& tensor : tensors_in(arguments)) {
    if (const std::optional<Slot> slot = slot_of(tensor)) needed.insert(*slot);
  }
  Values values;
  replay(needed, values);
  std::vector<c10::IValue> stack;
  for (const c10::IValue& argument : arguments)
    stack.push_back(map_tensors(argument, [&](const at::Tensor& tensor) { return real(tensor, values); }));
  op.callBoxed(stack);
  return stack;
}

at::Tensor InitTape::value_of(const at::Tensor& meta) const {
  const c10::impl::ExcludeDispatchKeyGuard unrecorded(c10::DispatchKey::DeferredInit);
  const Slot slot = slot_of(meta).value();
  const auto bytes = static_cast<std::int64_t>(slots_[slot].nbytes());
  Values values = {{slot, at::empty({bytes}, at::TensorOptions(at::kByte).device(at::kCPU)).storage()}};
  replay({slot}, values);
  return real(meta, values);
}

at::Tensor InitTape::view_of(const at::Tensor& value, const at::Tensor& meta) const {
  Values values = {{slot_of(meta).value(), value.storage()}};
  return real(meta, values);
}

void InitTape::fill(const at::Tensor& place, const at::Tensor& meta) const {
  const c10::impl::ExcludeDispatchKeyGuard unrecorded(c10::DispatchKey::DeferredInit);
  const at::NoGradGuard no_grad;
  const Slot slot = slot_of(meta).value();
  Values values;
  const bool fits = covers(meta, slots_[slot]) && place.storage_offset() == 0;
  if (fits) values.emplace(slot, place.storage());  // the calls fill it where it lies
  replay({slot}, values);
  const at::Tensor value = real(meta, values);
  if (value.const_data_ptr() != place.const_data_ptr()) place.copy_(value);
}

// A storage that no call has made has memory of any content: it was made by empty(), or will be overwritten.
at::Tensor InitTape::real(const at::Tensor& meta, Values& values) const {
  const std::optional<Slot> slot = slot_of(meta);
  if (!slot) return meta;
  const auto [at, is_new] = values.try_emplace(*slot);
  if (is_new) at->second = scratch_storage(slots_[*slot].nbytes());
  at::Tensor tensor = at::empty({0}, meta.options().device(at::kCPU));
  tensor.set_(at->second, meta.storage_offset(), meta.sizes(), meta.strides());
  tensor._set_conj(meta.is_conj());
  tensor._set_neg(meta.is_neg());
  if (meta.unsafeGetTensorImpl()->is_wrapped_number()) tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

// Backwards through the tape for what is needed, then forwards through that.
void InitTape::replay(std::unordered_set<Slot> needed, Values& values) const {
  const c10::impl::ExcludeDispatchKeyGuard unrecorded(c10::DispatchKey::DeferredInit);
  const at::NoGradGuard no_grad;
  const std::unordered_set<Slot> wanted = needed;
  std::vector<const Call*> chosen;
  std::unordered_map<Slot, const Call*> last_use;
  for (auto call = calls_.rbegin(); call != calls_.rend(); ++call) {
    const auto is_needed = [&](Slot slot) { return needed.contains(slot); };
    if (makes_nothing(*call) || std::none_of(call->writes.begin(), call->writes.end(), is_needed)) continue;
    chosen.push_back(&*call);
    for (const Slot slot : call->reads) last_use.try_emplace(slot, &*call);
    for (const Slot slot : call->writes) last_use.try_emplace(slot, &*call);
    if (call->overwritten) needed.erase(*call->overwritten);
    needed.insert(call->reads.begin(), call->reads.end());
  }
  for (auto call = chosen.rbegin(); call != chosen.rend(); ++call) {
    const auto earlier = (*call)->random_state ? std::make_unique<EarlierState>(
                                                     generator_of((*call)->arguments), *(*call)->random_state)
                                               : nullptr;
    run(**call, values);
    for (const auto* const slots : {&(*call)->reads, &(*call)->writes}) {
      for (const Slot slot : *slots) {
        if (last_use[slot] == *call && !wanted.contains(slot)) values.erase(slot);
      }
    }
  }
}

void InitTape::run(const Call& call, Values& values) const {
  const DefaultDtype dtype(call.default_dtype);
  std::vector<c10::IValue> stack;
  for (const c10::IValue& argument : call.arguments)
    stack.push_back(map_tensors(argument, [&](const at::Tensor& tensor) { return real(tensor, values); }));
  call.op.callBoxed(stack);
  const std::vector<at::Tensor> results = tensors_in(stack);
  for (std::size_t i = 0; i < call.results.size(); ++i) {
    const at::Tensor& expected = call.results[i];
    if (!expected.defined()) continue;
    if (results.size() != call.results.size() || results[i].strides() != expected.strides() ||
        results[i].sizes() != expected.sizes() || results[i].scalar_type() != expected.scalar_type() ||
        results[i].storage_offset() != expected.storage_offset())
      throw InternalError(lockstep::str("meta_init: ", call.op.operator_name(),
                                        " gives a tensor of another layout in CPU memory than on the meta "
                                        "device"));
    values[*slot_of(expected)] = results[i].storage();
  }
}

}  // namespace lockstep
