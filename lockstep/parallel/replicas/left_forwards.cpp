#include "lockstep/parallel/replicas/left_forwards.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <exception>
#include <utility>

namespace lockstep {
namespace {

using torch::autograd::variable_list;
using Count = std::shared_ptr<std::atomic<std::int32_t>>;

// The result of one forward. The nodes of its outputs hold it.
class Result {
 public:
  explicit Result(Count count) : count_(std::move(count)), exceptions_(std::uncaught_exceptions()) {}
  ~Result() {
    if (!is_done_ && std::uncaught_exceptions() > exceptions_) ++*count_;
  }
  Result(const Result&) = delete;
  Result& operator=(const Result&) = delete;
  void is_done() { is_done_ = true; }

 private:
  const Count count_;
  const int exceptions_;
  std::atomic<bool> is_done_ = false;  // a backward through it has come to its end
};

class Hook : public torch::autograd::FunctionPreHook {
 public:
  explicit Hook(std::shared_ptr<Result> result) : result_(std::move(result)) {}
  variable_list operator()(const variable_list& gradients) override {
    torch::autograd::Engine::get_default_engine().queue_callback([result = result_] { result->is_done(); });
    return gradients;
  }

 private:
  std::shared_ptr<Result> result_;
};

}  // namespace

LeftForwards::Attempt::Attempt(const LeftForwards& left)
    : left_(left), exceptions_(std::uncaught_exceptions()) {}

LeftForwards::Attempt::~Attempt() {
  if (std::uncaught_exceptions() > exceptions_) ++*left_.count_;
}

void LeftForwards::Attempt::watch(const std::vector<at::Tensor>& outputs) const {
  const auto result = std::make_shared<Result>(left_.count_);
  for (const at::Tensor& output : outputs) {
    if (const auto& node = output.grad_fn()) node->add_pre_hook(std::make_unique<Hook>(result));
  }
}

}  // namespace lockstep
