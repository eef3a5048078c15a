#include "lockstep/tensor/init_recorder.h"

#include <ATen/core/grad_mode.h>
#include <ATen/core/op_registration/op_registration.h>
#include <ATen/ops/detach.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/StorageImpl.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/tensor/init_tape.h"

namespace lockstep {
namespace {

using Values = std::vector<c10::IValue>;

constexpr std::size_t REAL_BYTES = 4096;             // up to here a tensor is made at once
constexpr std::size_t CONSTANT_BYTES = 1024 * 1024;  // of a real tensor that the tape may keep

constexpr const char* NO_MEMORY =
    "this tensor has no memory yet, because meta_init() made it: wrap the module in ShardedDataParallel, or "
    "call lockstep::materialize(module), before it is used. What is done within meta_init() uses tensor "
    "operations, not pointers to elements";

thread_local std::shared_ptr<InitTape> active_tape;  // NOLINT(*-avoid-non-const-global-variables)

[[noreturn]] void refuse(const c10::OperatorHandle& op, const std::string& what) {
  throw InvalidArgument(lockstep::str("meta_init: ", op.operator_name(), " ", what));
}

// --- Deferred tensors: a storage that knows its slot -------------------------------------------------------

struct Place {
  std::shared_ptr<InitTape> tape;
  InitTape::Slot slot;
};
void delete_place(void* place) { delete static_cast<Place*>(place); }

const Place* recorded_place(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return nullptr;
  const c10::DataPtr& pointer = tensor.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks();
  return pointer.get_deleter() == &delete_place ? static_cast<const Place*>(pointer.get_context()) : nullptr;
}

c10::Storage storage_without_memory(const std::shared_ptr<InitTape>& tape, InitTape::Slot slot) {
  c10::DataPtr pointer(nullptr, new Place{tape, slot}, &delete_place, at::kCPU);
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
                                                       tape->storage_of(slot).nbytes(), std::move(pointer),
                                                       /*allocator=*/nullptr, /*resizable=*/false);
  storage->release_data_and_set_meta_custom_data_ptr_error_msg_(std::string(NO_MEMORY));
  storage->set_throw_on_mutable_data_ptr();
  return c10::Storage(std::move(storage));
}

void set_layout(const at::Tensor& tensor, const at::Tensor& like) {
  tensor.unsafeGetTensorImpl()->set_storage_offset(like.storage_offset());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides());
}

at::Tensor tensor_like(const at::Tensor& like, c10::Storage storage, c10::DispatchKey key) {
  at::Tensor tensor =
      at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), like.dtype());
  set_layout(tensor, like);
  tensor._set_conj(like.is_conj());
  tensor._set_neg(like.is_neg());
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

at::Tensor meta_of(const at::Tensor& tensor, const Place& place) {
  return tensor_like(tensor, place.tape->storage_of(place.slot), c10::DispatchKey::Meta);
}

// --- Results of a constructor that autograd would track ---------------------------------------------------

struct NoGraph : torch::autograd::Function<NoGraph> {
  static at::Tensor forward(torch::autograd::AutogradContext* /*context*/, const at::Tensor& result,
                            const at::Tensor& /*input*/) {
    return result.detach();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/,
                                                 const torch::autograd::variable_list& /*gradients*/) {
    throw InvalidArgument(
        "backward() reaches a tensor that a constructor within meta_init() has computed of parameters, and "
        "meta_init() records no graphs: compute it in forward()");
  }
};

// --- One operation ----------------------------------------------------------------------------------------

class Operation {
 public:
  Operation(const c10::OperatorHandle& op, torch::jit::Stack& stack, std::shared_ptr<InitTape> tape)
      : op_(op), stack_(stack), tape_(std::move(tape)) {
    const std::size_t count = op.schema().arguments().size();
    arguments_.assign(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
    look();
  }

  void carry_out() {
    if (is_real()) return op_.callBoxed(stack_);
    stack_.resize(stack_.size() - arguments_.size());
    const Values results = deferred_ > 0 ? compute() : make();
    stack_.insert(stack_.end(), results.begin(), results.end());
  }

 private:
  void look() {
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      for (const at::Tensor& tensor : tensors_in({arguments_[i]})) {
        const Place* const place = recorded_place(tensor);
        if (place != nullptr && place->tape != tape_) refuse(op_, "is given a tensor of another meta_init()");
        (place == nullptr ? real_ : deferred_) += 1;
        if (place == nullptr && is_written(op_, i)) writes_real_ = true;
        if (place != nullptr && is_written(op_, i)) check_written(tensor);
      }
    }
    is_random_ = op_.hasTag(at::Tag::nondeterministic_seeded);
  }

  void check_written(const at::Tensor& tensor) const {
    if (at::GradMode::is_enabled() && tensor.requires_grad() && tensor.is_leaf())
      refuse(op_,
             "writes to a leaf that requires a gradient. Write within torch::NoGradGuard, as without "
             "meta_init()");
  }

  std::optional<c10::Device> asked_device() const {
    for (const c10::IValue& argument : arguments_) {
      if (argument.isDevice()) return argument.toDevice();
    }
    return std::nullopt;
  }
  bool is_on_cpu() const { return asked_device().value_or(at::kCPU).is_cpu(); }
  bool has_device_argument() const {
    const auto& arguments = op_.schema().arguments();
    return std::any_of(arguments.begin(), arguments.end(),
                       [](const c10::Argument& argument) { return argument.name() == "device"; });
  }

  // A computation of real tensors; or of no tensors, if it does not make one in CPU memory.
  bool is_real() const {
    if (deferred_ > 0) return false;
    return real_ > 0 || !has_device_argument() || !is_on_cpu() || is_for_values();
  }
  // torch::tensor(values) makes a tensor with these options alone and writes to its memory.
  bool is_for_values() const {
    return op_.operator_name().name == "aten::empty" && arguments_.size() == 6 && arguments_[1].isInt() &&
           arguments_[2].isNone() && arguments_[3].isDevice() && arguments_[4].isNone() &&
           arguments_[0].isIntList() && arguments_[0].toIntVector().size() == 1 &&
           static_cast<std::size_t>(arguments_[0].toIntVector()[0]) <= CONSTANT_BYTES / sizeof(double);
  }

  // With tensors of the meta device in place of all.
  Values meta_arguments() const {
    Values meta;
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      meta.push_back(map_tensors(arguments_[i], [](const at::Tensor& tensor) {
        const Place* const place = recorded_place(tensor);
        if (place != nullptr) return meta_of(tensor, *place);
        at::Tensor shape =
            at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
        if (tensor.unsafeGetTensorImpl()->is_wrapped_number())
          shape.unsafeGetTensorImpl()->set_wrapped_number(true);
        return shape;
      }));
      const bool makes = deferred_ == 0 && op_.schema().arguments()[i].name() == "device";
      if (makes || arguments_[i].isDevice()) meta.back() = c10::IValue(c10::Device(at::kMeta));
    }
    return meta;
  }

  // What the tape keeps: real tensors as they are now.
  Values tape_arguments(bool keeps) const {
    Values values;
    for (const c10::IValue& argument : arguments_) {
      if (argument.isStorage()) refuse(op_, "uses a storage: read files after meta_init()");
      values.push_back(map_tensors(argument, [this, keeps](const at::Tensor& tensor) {
        const Place* const place = recorded_place(tensor);
        if (place != nullptr) return meta_of(tensor, *place);
        if (!keeps) return tensor;
        if (tensor.nbytes() > CONSTANT_BYTES)
          refuse(op_, lockstep::str("reads a tensor of ", tensor.nbytes(),
                                    " bytes that was not made within meta_init() (from_blob(), a file): each "
                                    "rank would keep a copy. Load it when the module is placed, within "
                                    "write_parameters() or by load_state_dict()"));
        return tensor.detach().clone();
      }));
    }
    return values;
  }

  // A tensor of no others: real if it is small.
  Values make() {
    Values meta = meta_arguments();
    if (!has_shapes(meta) || bytes_of(meta) <= REAL_BYTES) {
      Values results = arguments_;
      op_.callBoxed(results);
      return results;
    }
    return record(meta, {});
  }

  Values compute() {
    if (!is_on_cpu())
      refuse(op_, lockstep::str("moves a tensor to ", asked_device()->str(),
                                ": within meta_init() a module is made in CPU memory"));
    if (writes_real_) return evaluate();
    Values results = meta_arguments();
    const std::vector<at::Tensor> inputs = tensors_in(results);
    if (!has_shapes(results) || views_real(results, inputs)) return evaluate();
    return record(results, inputs);
  }

  // Puts results in place of arguments. False: the operation needs values, or libtorch has no shapes for it,
  // or it is a mistake of the program.
  bool has_shapes(Values& stack) const {
    try {
      op_.callBoxed(stack);
      return true;
    } catch (const c10::Error&) {
      return false;
    }
  }

  std::size_t bytes_of(const Values& results) const {
    std::size_t bytes = 0;
    for (const at::Tensor& tensor : tensors_in(results)) bytes += check_result(tensor).nbytes();
    return bytes;
  }

  // A result is a view of a real tensor.
  bool views_real(const Values& results, const std::vector<at::Tensor>& inputs) const {
    for (const at::Tensor& result : tensors_in(results)) {
      for (const at::Tensor& input : inputs) {
        if (!tape_->slot_of(input) && !input.is_same(result) && input.is_alias_of(check_result(result)))
          return true;
      }
    }
    return false;
  }

  Values evaluate() {
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      const std::vector<at::Tensor> tensors = tensors_in({arguments_[i]});
      const bool writes = is_written(op_, i) &&
                          std::any_of(tensors.begin(), tensors.end(),
                                      [](const auto& tensor) { return recorded_place(tensor) != nullptr; });
      if (!writes) continue;
      static_cast<void>(tape_->evaluate(op_, tape_arguments(/*keeps=*/false)));  // a mistake says so itself
      refuse(op_, "writes to a tensor of the module, and libtorch cannot run it on the meta device");
    }
    return tape_->evaluate(op_, tape_arguments(/*keeps=*/false));
  }

  const at::Tensor& check_result(const at::Tensor& tensor) const {
    if (tensor.has_storage() && tensor.layout() == at::kStrided && !tensor.is_quantized()) return tensor;
    refuse(op_, "makes a tensor that is not dense");
  }

  // `results` are on the meta device; `inputs` are what gave them, in the order of the arguments' tensors.
  Values record(const Values& results, const std::vector<at::Tensor>& inputs) {
    InitTape::Call call{
        .op = op_, .arguments = tape_arguments(/*keeps=*/false), .results = {}, .is_random = is_random_};
    bool is_needed = false;
    for (const at::Tensor& result : tensors_in(results)) {
      const bool is_new = !tape_->slot_of(check_result(result)) && !is_one_of(inputs, result);
      if (is_new) tape_->add_slot(result.storage());
      call.results.push_back(is_new ? layout_of(result) : at::Tensor());
      is_needed |= is_new;
    }
    for (std::size_t i = 0; i < arguments_.size(); ++i) is_needed |= is_written(op_, i);
    const std::vector<at::Tensor> originals = tensors_in(arguments_);
    if (is_needed) {
      call.arguments = tape_arguments(/*keeps=*/true);
      tape_->record(std::move(call));
      for (std::size_t i = 0; i < inputs.size(); ++i) take_over(originals[i], inputs[i]);
    }
    Values faces;
    for (const c10::IValue& result : results) {
      faces.push_back(map_tensors(result, [&](const at::Tensor& meta) {
        for (std::size_t i = 0; i < inputs.size(); ++i) {
          if (inputs[i].is_same(meta)) return originals[i];
        }
        return tracked(face_of(meta), originals);
      }));
    }
    return faces;
  }

  static bool is_one_of(const std::vector<at::Tensor>& tensors, const at::Tensor& tensor) {
    return std::any_of(tensors.begin(), tensors.end(),
                       [&](const at::Tensor& one) { return one.is_same(tensor); });
  }

  static at::Tensor layout_of(const at::Tensor& meta) {
    return tensor_like(meta, meta.storage(), c10::DispatchKey::Meta);
  }

  // An operation in place may have changed the shape, the place in a storage, the storage.
  void take_over(const at::Tensor& original, const at::Tensor& meta) const {
    const Place* const place = recorded_place(original);
    if (place == nullptr) return;
    const InitTape::Slot slot = tape_->slot_of(meta).value();
    if (slot != place->slot) {
      original.unsafeGetTensorImpl()->set_storage_keep_dtype(storage_without_memory(tape_, slot));
    } else {
      original.storage().unsafeGetStorageImpl()->set_nbytes(meta.storage().nbytes());
    }
    if (original.sizes() != meta.sizes() || original.strides() != meta.strides() ||
        original.storage_offset() != meta.storage_offset())
      set_layout(original, meta);
  }

  at::Tensor face_of(const at::Tensor& meta) const {
    const InitTape::Slot slot = tape_->slot_of(meta).value();
    for (const at::Tensor& argument : tensors_in(arguments_)) {
      const Place* const place = recorded_place(argument);
      if (place != nullptr && place->slot == slot)
        return tensor_like(meta, argument.storage(), c10::DispatchKey::CPU);
    }
    return tensor_like(meta, storage_without_memory(tape_, slot), c10::DispatchKey::CPU);
  }

  at::Tensor tracked(const at::Tensor& result, const std::vector<at::Tensor>& inputs) const {
    if (!at::GradMode::is_enabled() || !torch::autograd::isDifferentiableType(result.scalar_type()))
      return result;
    if (op_.operator_name().name == "aten::detach") return result;
    for (const at::Tensor& input : inputs) {
      if (input.requires_grad()) return NoGraph::apply(result, input);
    }
    return result;
  }

  const c10::OperatorHandle& op_;
  torch::jit::Stack& stack_;
  const std::shared_ptr<InitTape> tape_;
  Values arguments_;
  int deferred_ = 0;  // tensors among the arguments
  int real_ = 0;
  bool writes_real_ = false;
  bool is_random_ = false;
};

void carry_out(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard unrecorded(c10::DispatchKey::DeferredInit);
  Operation(op, *stack, active_tape).carry_out();
}

// For the process, once, when it is first asked for.
void give_key_its_fallback() {
  static torch::Library library(torch::Library::IMPL, "_", c10::DispatchKey::DeferredInit, __FILE__,
                                __LINE__);
  [[maybe_unused]] static const bool done = [] {
    library.fallback(torch::CppFunction::makeFromBoxedFunction<&carry_out>());
    return true;
  }();
}

std::shared_ptr<InitTape> begin() {
  give_key_its_fallback();
  std::shared_ptr<InitTape> before = active_tape;
  if (before == nullptr) active_tape = std::make_shared<InitTape>();
  return before;
}

}  // namespace

InitRecorder::InitRecorder() : before_(begin()), include_(c10::DispatchKey::DeferredInit) {}
InitRecorder::~InitRecorder() { active_tape = before_; }

Deferred deferred_of(const at::Tensor& tensor) {
  const Place* const place = recorded_place(tensor);
  if (place == nullptr) return {};
  const c10::impl::ExcludeDispatchKeyGuard unrecorded(c10::DispatchKey::DeferredInit);
  return {.tape = place->tape, .meta = meta_of(tensor, *place)};
}

}  // namespace lockstep
