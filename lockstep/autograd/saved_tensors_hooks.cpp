#include "lockstep/autograd/saved_tensors_hooks.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <mutex>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

namespace autograd = torch::autograd;

using NodePointer = decltype(autograd::Edge::function);  // a std::shared_ptr in libtorch 2.11

thread_local std::vector<const SavedTensorsHooks::Pack*> active;  // the innermost is the last

// The hooks of one saved tensor.
class FunctionHooks : public autograd::SavedVariableHooks {
 public:
  explicit FunctionHooks(const SavedTensorsHooks::Pack* pack) : pack_(pack) {}
  // Called at once, while the guard lives; pack_ is not used later.
  void call_pack_hook(const at::Tensor& tensor) override { unpack_ = (*pack_)(tensor); }
  at::Tensor call_unpack_hook() override { return unpack_(); }
  std::optional<std::pair<c10::SafePyObject, c10::SafePyObject>> retrieve_unpack_hook_data() const override {
    return std::nullopt;
  }

 private:
  const SavedTensorsHooks::Pack* pack_;
  SavedTensorsHooks::Unpack unpack_;
};

// Provides hooks, and leaves backward to libtorch's engine. A second real engine in a process would get no
// threads for devices (initialize_device_threads_pool() starts them once).
class HookedEngine : public autograd::Engine {
 public:
  static autograd::Engine& instance() {
    static auto* const engine = new HookedEngine;  // lives as long as the process
    return *engine;
  }
  autograd::variable_list execute(const autograd::edge_list& roots, const autograd::variable_list& inputs,
                                  bool keep_graph, bool create_graph, bool accumulate_grad,
                                  const autograd::edge_list& outputs) override {
    return get_base_engine().execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
  }
  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(
      const std::shared_ptr<autograd::GraphTask>& graph_task, NodePointer graph_root,
      autograd::InputBuffer&& input_buffer) override {
    return get_base_engine().execute_with_graph_task(graph_task, std::move(graph_root),
                                                     std::move(input_buffer));
  }
  std::unique_ptr<autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return active.empty() ? nullptr : std::make_unique<FunctionHooks>(active.back());
  }
};

void install_engine() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const autograd::Engine* const present = &autograd::Engine::get_default_engine();
  if (present == &HookedEngine::instance()) return;
  if (present != &autograd::Engine::get_base_engine()) {
    throw InvalidArgument(
        "saved_tensors_hooks (checkpoint needs it): this process has another autograd engine than "
        "libtorch's, "
        "Python's most likely; use torch.autograd.graph.saved_tensors_hooks or torch.utils.checkpoint there");
  }
  autograd::set_default_engine_stub(&HookedEngine::instance);
}

}  // namespace

SavedTensorsHooks::SavedTensorsHooks(Pack pack) : pack_(std::move(pack)) {
  if (!pack_) throw InvalidArgument("saved_tensors_hooks: the function is empty");
  install_engine();
  active.push_back(&pack_);
}

SavedTensorsHooks::~SavedTensorsHooks() { active.pop_back(); }

}  // namespace lockstep
