#include "lockstep/tensor/sparse_all_reduce.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "lockstep/tensor/collectives.h"
#include "lockstep/tensor/tensor_call.h"

namespace lockstep {
namespace {

// Ranks first tell each other dtype, sparse_dim and sizes, then their numbers of elements.
constexpr std::int64_t HEADER = 3;
constexpr std::int64_t MOST_DIMENSIONS = 64;

at::Tensor description_of(const at::Tensor& tensor) {
  at::Tensor description = at::zeros({HEADER + MOST_DIMENSIONS}, at::kLong);
  description[0] = static_cast<std::int64_t>(tensor.scalar_type());
  description[1] = tensor.sparse_dim();
  description[2] = tensor._nnz();
  // so that 0 means that there are no more dimensions
  for (std::int64_t i = 0; i < tensor.dim(); ++i) description[HEADER + i] = tensor.size(i) + 1;
  return description;
}

std::string description_text(const at::Tensor& description) {
  std::string sizes;
  for (std::int64_t i = HEADER; i < description.numel(); ++i) {
    const auto size = description[i].item<std::int64_t>();
    if (size > 0) sizes += str(sizes.empty() ? "" : ", ", size - 1);
  }
  const auto dtype = static_cast<at::ScalarType>(description[0].item<std::int64_t>());
  return str(c10::toString(dtype), " of sizes [", sizes, "] with sparse_dim ",
             description[1].item<std::int64_t>());
}

void check_agreement(const std::vector<at::Tensor>& descriptions, const ProcessGroup& group) {
  for (std::size_t r = 1; r < descriptions.size(); ++r) {
    const at::Tensor difference = descriptions[r].ne(descriptions[0]);
    difference[2] = false;
    if (!difference.any().item<bool>()) continue;
    throw Mismatch(str("all_reduce on group \"", group.name(), "\", rank ", group.rank(), " of ",
                       group.size(), ": ", ranks_text(group, {0}), " has a sparse tensor ",
                       description_text(descriptions[0]), ", ", ranks_text(group, {static_cast<int>(r)}),
                       " has ", description_text(descriptions[r]), "; all ranks must pass the same kind"));
  }
}

std::vector<at::Tensor> gathered(const at::Tensor& mine, const std::vector<at::Tensor>& outputs,
                                 const ProcessGroup& group) {
  all_gather(outputs, mine, group);
  return outputs;
}

}  // namespace

void sparse_all_reduce(const at::Tensor& tensor, ReduceOp op, const ProcessGroup& group) {
  const TensorCall call("all_reduce", group);
  if (op != ReduceOp::SUM)
    call.refuse("sparse tensors can only be summed (as in torch), the operator is ", name_of(op));
  if (!tensor.device().is_cpu())
    call.refuse("only CPU tensors are supported, this one is on ", tensor.device().str());
  if (!carried_dtype(tensor.scalar_type()))
    call.refuse("tensors of dtype ", c10::toString(tensor.scalar_type()), " are not carried");
  if (tensor.dim() > MOST_DIMENSIONS) call.refuse("more than ", MOST_DIMENSIONS, " dimensions");

  if (!call.is_member()) return;
  const c10::NoGradGuard no_grad;
  const at::Tensor mine = tensor.detach().coalesce();
  const at::Tensor description = description_of(mine);
  std::vector<at::Tensor> descriptions;
  for (int r = 0; r < group.size(); ++r) descriptions.push_back(at::empty_like(description));
  all_gather(descriptions, description, group);
  check_agreement(descriptions, group);

  std::vector<at::Tensor> indices;
  std::vector<at::Tensor> values;
  for (const at::Tensor& of_rank : descriptions) {
    const auto count = of_rank[2].item<std::int64_t>();
    auto value_sizes = mine._values().sizes().vec();
    value_sizes[0] = count;
    indices.push_back(at::empty({mine.sparse_dim(), count}, at::kLong));
    values.push_back(at::empty(value_sizes, mine.scalar_type()));
  }
  const at::Tensor sum =
      at::sparse_coo_tensor(at::cat(gathered(mine._indices(), indices, group), 1),
                            at::cat(gathered(mine._values(), values, group), 0), mine.sizes());
  tensor.copy_(sum.coalesce());
}

}  // namespace lockstep
