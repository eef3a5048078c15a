#include "lockstep/parallel/tensor_parallel/region_steps.h"

#include <ATen/ops/empty.h>

#include <vector>

#include "lockstep/base/str.h"
#include "lockstep/comm/purpose.h"
#include "lockstep/parallel/tensor_parallel/exchange_memory.h"
#include "lockstep/parallel/wrapper.h"
#include "lockstep/tensor/collectives.h"

namespace lockstep::tensor_parallel {
namespace {

at::Tensor own_part(const at::Tensor& tensor, std::int64_t dim, const ProcessGroup& group) {
  const std::int64_t part = tensor.size(dim) / group.size();
  return tensor.narrow(dim, group.rank() * part, part).contiguous();
}

at::Tensor gather_first(const at::Tensor& part, const ProcessGroup& group) {
  std::vector<std::int64_t> sizes = part.sizes().vec();
  sizes[0] *= group.size();
  at::Tensor whole = at::empty(sizes, part.options());
  all_gather_into_tensor(whole, part.contiguous(), group);
  return whole;
}

at::Tensor gather_last(const at::Tensor& part, const ProcessGroup& group) {
  const at::Tensor stacked = gather_first(part.unsqueeze(0), group);  // [ranks, ..., part]
  std::vector<std::int64_t> sizes = part.sizes().vec();
  sizes.back() *= group.size();
  return stacked.movedim(0, -2).reshape(sizes);
}

at::Tensor reduce_scatter_first(const at::Tensor& partial, const ProcessGroup& group) {
  std::vector<std::int64_t> sizes = partial.sizes().vec();
  sizes[0] /= group.size();
  at::Tensor part = at::empty(sizes, partial.options());
  reduce_scatter_tensor(part, partial.contiguous(), ReduceOp::SUM, group);
  return part;
}

}  // namespace

at::Tensor region_step(RegionStep step, const at::Tensor& tensor, const ProcessGroup& group) {
  if (group.size() == 1) return tensor;
  const Acting acting(Purpose::TENSOR_PARALLEL);
  switch (step) {
    case RegionStep::IDENTITY: return tensor;
    case RegionStep::REDUCE: {
      at::Tensor sum = exchange_copy(tensor, group);
      all_reduce(sum, ReduceOp::SUM, group);
      return sum;
    }
    case RegionStep::SPLIT_LAST: return own_part(tensor, -1, group);
    case RegionStep::GATHER_LAST: return gather_last(tensor, group);
    case RegionStep::SPLIT_FIRST: return own_part(tensor, 0, group);
    case RegionStep::GATHER_FIRST: return gather_first(tensor, group);
    case RegionStep::REDUCE_SCATTER_FIRST: return reduce_scatter_first(tensor, group);
  }
  return tensor;
}

void expect_step(std::string_view function, RegionStep step, const at::Tensor& tensor,
                 const ProcessGroup& group) {
  group.require_member(function);
  const Wrapper here{function};
  if (step == RegionStep::IDENTITY || step == RegionStep::REDUCE) return;
  if (tensor.dim() == 0) here.refuse(group, "the tensor has no dimensions, so it has no parts");
  const bool is_last = step == RegionStep::SPLIT_LAST || step == RegionStep::GATHER_LAST;
  const std::int64_t size = tensor.size(is_last ? -1 : 0);
  const bool splits = step != RegionStep::GATHER_LAST && step != RegionStep::GATHER_FIRST;
  if (splits && size % group.size() != 0) {
    here.refuse(group,
                lockstep::str("the ", is_last ? "last" : "first", " dimension of ", tensor.sizes(),
                              " is cut into equal parts, and ", group.size(), " ranks do not divide ", size));
  }
}

}  // namespace lockstep::tensor_parallel
