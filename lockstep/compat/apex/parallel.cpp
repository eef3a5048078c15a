#include "lockstep/compat/apex/parallel.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/tensor/collectives.h"

namespace lockstep::compat::apex::parallel {
namespace {

constexpr double MIB = 1024 * 1024;
constexpr double EVERYTHING = 1e8;  // MiB

class ScaledSumHook : public CommHook {
 public:
  explicit ScaledSumHook(const DistributedDataParallelOptions& options) : options_(options) {}

  std::string describe() const override {
    return lockstep::str("apex(allreduce_always_fp32 ", options_.allreduce_always_fp32, ", gradient_average ",
                         options_.gradient_average, ", gradient_predivide_factor ",
                         options_.gradient_predivide_factor, ")");
  }

  HookStep run(const GradBucket& bucket) override {
    const c10::NoGradGuard no_grad;
    const at::Tensor buffer = bucket.reals();
    const bool widens = options_.allreduce_always_fp32 && c10::elementSize(buffer.scalar_type()) < 4;
    const at::Tensor sum = widens ? buffer.to(at::kFloat) : buffer;
    const double factor = options_.gradient_predivide_factor;
    if (factor != 1) sum.mul_(1 / factor);
    const double after = options_.gradient_average ? factor / bucket.group().size() : 1;
    return {all_reduce(sum, ReduceOp::SUM, bucket.group(), /*async_op=*/true), [buffer, sum, after] {
              const c10::NoGradGuard unrecorded;
              if (after != 1) sum.mul_(after);
              if (!sum.is_same(buffer)) buffer.copy_(sum);
              return HookStep();
            }};
  }

 private:
  const DistributedDataParallelOptions options_;
};

}  // namespace

lockstep::DistributedDataParallelOptions options_of(const DistributedDataParallelOptions& options,
                                                    const NamedTensors& parameters) {
  if (!(options.message_size >= 1)) {
    throw InvalidArgument(lockstep::str("apex DistributedDataParallel: message_size is ",
                                        options.message_size, "; it is a number of elements, at least 1"));
  }
  std::size_t width = 1;
  for (const auto& [name, tensor] : parameters)
    width = std::max(width, static_cast<std::size_t>(tensor.element_size()));
  const double cap = options.delay_allreduce
                         ? EVERYTHING
                         : std::min(EVERYTHING, options.message_size * static_cast<double>(width) / MIB);
  return {.process_group = options.process_group, .bucket_cap_mb = cap, .first_bucket_mb = cap};
}

std::shared_ptr<CommHook> hook_of(const DistributedDataParallelOptions& options) {
  if (!(options.gradient_predivide_factor > 0)) {
    throw InvalidArgument(lockstep::str("apex DistributedDataParallel: gradient_predivide_factor is ",
                                        options.gradient_predivide_factor, "; it must be positive"));
  }
  const bool plain =
      options.gradient_average && options.gradient_predivide_factor == 1 && !options.allreduce_always_fp32;
  return plain ? nullptr : std::make_shared<ScaledSumHook>(options);
}

void broadcast_all(const std::vector<at::Tensor>& tensors, const ProcessGroup& group) {
  for (const at::Tensor& tensor : tensors) broadcast(tensor.detach(), GroupRank{0}, group);
}

Reducer::Reducer(std::vector<at::Tensor> parameters, const ProcessGroup& group)
    : parameters_(std::move(parameters)), group_(group) {
  group_.require_member("apex Reducer");
  broadcast_all(parameters_, group_);
}

void Reducer::reduce() const {
  const c10::NoGradGuard no_grad;
  std::map<at::ScalarType, std::vector<at::Tensor>> gradients;
  for (const at::Tensor& parameter : parameters_) {
    if (parameter.grad().defined()) gradients[parameter.grad().scalar_type()].push_back(parameter.grad());
  }
  for (const auto& [dtype, same] : gradients) all_reduce_coalesced(same, ReduceOp::AVG, group_);
}

}  // namespace lockstep::compat::apex::parallel
