#include "lockstep/autograd/activation_checkpoint.h"

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/nn/modules/container/sequential.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <string>

#include "lockstep/autograd/autocast.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

// Saves and restores the states of random generators.
class RandomState {
 public:
  static RandomState of(const std::set<std::pair<at::DeviceType, int>>& devices) {
    RandomState now;
    for (const auto& [type, index] : devices) {
      const at::Device device(type, static_cast<at::DeviceIndex>(type == at::kCPU ? -1 : index));
      at::Generator generator = at::globalContext().defaultGenerator(device);
      const std::lock_guard lock(generator.mutex());
      now.states_.emplace_back(generator, generator.get_state());
    }
    return now;
  }
  RandomState of_same_devices() const {
    RandomState now;
    for (auto [generator, state] : states_) {
      const std::lock_guard lock(generator.mutex());
      now.states_.emplace_back(generator, generator.get_state());
    }
    return now;
  }
  void apply() const {
    for (auto [generator, state] : states_) {
      const std::lock_guard lock(generator.mutex());
      generator.set_state(state);
    }
  }

 private:
  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

class RandomStateGuard {
 public:
  explicit RandomStateGuard(const RandomState& state) : before_(state.of_same_devices()) { state.apply(); }
  ~RandomStateGuard() { before_.apply(); }
  RandomStateGuard(const RandomStateGuard&) = delete;
  RandomStateGuard& operator=(const RandomStateGuard&) = delete;

 private:
  const RandomState before_;
};

std::set<std::pair<at::DeviceType, int>> devices_of(const std::vector<at::Tensor>& tensors) {
  std::set<std::pair<at::DeviceType, int>> devices = {{at::kCPU, -1}};
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined() && !tensor.device().is_cpu() && !tensor.device().is_meta())
      devices.emplace(tensor.device().type(), tensor.device().index());
  }
  return devices;
}

struct Metadata {
  std::vector<std::int64_t> sizes;
  at::ScalarType dtype;
  at::Device device;
  explicit Metadata(const at::Tensor& tensor)
      : sizes(tensor.sizes().vec()), dtype(tensor.scalar_type()), device(tensor.device()) {}
  bool operator==(const Metadata&) const = default;
  std::string text() const { return lockstep::str(at::IntArrayRef(sizes), " ", dtype, " on ", device); }
};

}  // namespace

namespace detail {

class CheckpointFrame : public std::enable_shared_from_this<CheckpointFrame> {
 public:
  CheckpointFrame(const CheckpointOptions& options, const std::vector<at::Tensor>& inputs,
                  CheckpointRecorder::Again again)
      : options_(options), again_(std::move(again)), autocast_(AutocastState::of_this_thread()) {
    if (options.preserve_rng_state) random_ = RandomState::of(devices_of(inputs));
    // Inputs are saved as operations save them. So changes in place are noticed, and inside another
    // checkpoint its hooks take them.
    for (const at::Tensor& input : inputs) inputs_.emplace_back(input, /*is_output=*/false);
  }

  // In forward: drops the tensor, and returns the function that gives it back.
  SavedTensorsHooks::Unpack pack(const at::Tensor& tensor) {
    const std::lock_guard lock(mutex_);
    auto wanted = std::make_shared<char>();  // lives as long as the tensor can still be requested
    saved_.push_back({.metadata = Metadata(tensor), .wanted = wanted});
    return [frame = shared_from_this(), index = saved_.size() - 1, wanted] { return frame->unpack(index); };
  }

  void forward_is_over() {
    const std::lock_guard lock(mutex_);
    forward_is_over_ = true;
  }

 private:
  struct Saved {
    Metadata metadata;
    std::weak_ptr<char> wanted;
  };
  // Thrown to end the second call when nothing more is needed. Not a std::exception, so that a function that
  // catches those lets it pass.
  struct Enough {
    const void* run;
  };
  struct Run {
    std::vector<at::Tensor> tensors;
    std::size_t count = 0;
  };

  // The mutex is held from here on. A frame waits only for frames outside it, for its inputs.
  at::Tensor unpack(std::size_t index) {
    const std::lock_guard lock(mutex_);
    const int backward = torch::autograd::get_current_graph_task_id();
    if (backward != backward_ || backward == -1) recomputed_.clear();
    backward_ = backward;
    if (index >= recomputed_.size() || !recomputed_[index].defined()) recompute();
    return std::exchange(recomputed_[index], at::Tensor());
  }

  void recompute() {
    std::vector<at::Tensor> inputs;
    for (const auto& input : inputs_) {
      const at::Tensor one = input.unpack();
      inputs.push_back(one.defined() ? one.detach().set_requires_grad(one.requires_grad()) : one);
    }
    Run run{.tensors = std::vector<at::Tensor>(saved_.size())};
    {
      std::optional<RandomStateGuard> random;
      if (random_) random.emplace(*random_);
      const AutocastState::Guard autocast(autocast_);
      const c10::AutoGradMode grad_mode(true);
      const SavedTensorsHooks hooks([&](const at::Tensor& tensor) { return keep(run, tensor); });
      try {
        again_(inputs);
      } catch (const Enough& enough) {
        if (enough.run != &run) throw;
      }
    }
    check(run);
    recomputed_ = std::move(run.tensors);
  }

  SavedTensorsHooks::Unpack keep(Run& run, const at::Tensor& tensor) {
    const std::size_t index = run.count++;
    at::Tensor kept = tensor.detach();
    if (index < saved_.size()) {
      if (options_.determinism_check) check(index, Metadata(kept));
      if (!saved_[index].wanted.expired()) run.tensors[index] = kept;
    }
    if (options_.early_stop && forward_is_over_ && run.count == saved_.size()) throw Enough{&run};
    return [kept] { return kept; };  // for a backward within the function
  }

  void check(std::size_t index, const Metadata& now) const {
    const Metadata& before = saved_[index].metadata;
    if (now == before) return;
    throw InvalidArgument(
        str("checkpoint: the function did not do the same when it was run again in backward: "
            "tensor ",
            index + 1, " of ", saved_.size(), " that it saved was ", before.text(), " in forward and is ",
            now.text(),
            " now. It must depend on its inputs alone: not on state that it or others change, nor "
            "on random numbers with preserve_rng_state off"));
  }

  void check(const Run& run) const {
    const bool too_many = forward_is_over_ && run.count > saved_.size();
    if (run.count >= saved_.size() && !too_many) return;
    throw InvalidArgument(
        str("checkpoint: the function did not do the same when it was run again in backward: it saved ",
            saved_.size(), " tensors in forward and ", run.count,
            " now. It must depend on its inputs alone: not on state that it or others change"));
  }

  const CheckpointOptions options_;
  const CheckpointRecorder::Again again_;
  const AutocastState autocast_;
  std::optional<RandomState> random_;
  std::vector<torch::autograd::SavedVariable> inputs_;

  std::mutex mutex_;
  // guarded by mutex_
  std::vector<Saved> saved_;
  bool forward_is_over_ = false;
  int backward_ = -1;                   // autograd's number of the backward that `recomputed_` belongs to
  std::vector<at::Tensor> recomputed_;  // each is kept until it is requested
};

CheckpointRecorder::CheckpointRecorder(const CheckpointOptions& options,
                                       const std::vector<at::Tensor>& inputs, Again again)
    : frame_(std::make_shared<CheckpointFrame>(options, inputs, std::move(again))) {
  hooks_.emplace([frame = frame_](const at::Tensor& tensor) { return frame->pack(tensor); });
}

CheckpointRecorder::~CheckpointRecorder() {
  hooks_.reset();
  frame_->forward_is_over();
}

}  // namespace detail

at::Tensor checkpoint_sequential(const std::vector<std::function<at::Tensor(const at::Tensor&)>>& functions,
                                 std::int64_t segments, const at::Tensor& input,
                                 const CheckpointOptions& options) {
  const auto count = static_cast<std::int64_t>(functions.size());
  if (segments < 1 || segments > count) {
    throw InvalidArgument(str("checkpoint_sequential: ", segments, " segments of ", count,
                              " functions; it must be at least 1 and at most one per function"));
  }
  using Part = std::vector<std::function<at::Tensor(const at::Tensor&)>>;
  const auto run = [](const Part& part, at::Tensor x) {
    for (const auto& function : part) x = function(x);
    return x;
  };
  const std::int64_t size = count / segments;
  at::Tensor x = input;
  for (std::int64_t i = 0; i < segments - 1; ++i) {
    const Part part(functions.begin() + i * size, functions.begin() + (i + 1) * size);
    x = checkpoint(
        options, [part, run](const at::Tensor& in) { return run(part, in); }, x);
  }
  return run(Part(functions.begin() + (segments - 1) * size, functions.end()), x);
}

at::Tensor checkpoint_sequential(const torch::nn::Sequential& functions, std::int64_t segments,
                                 const at::Tensor& input, const CheckpointOptions& options) {
  std::vector<std::function<at::Tensor(const at::Tensor&)>> list;
  for (const auto& module : *functions) {
    list.emplace_back(
        [any = torch::nn::AnyModule(module)](const at::Tensor& x) mutable { return any.forward(x); });
  }
  return checkpoint_sequential(list, segments, input, options);
}

}  // namespace lockstep
