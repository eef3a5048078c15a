#include "lockstep/parallel/tensor_parallel/row_parallel_linear.h"

#include <utility>

#include "lockstep/base/str.h"
#include "lockstep/parallel/tensor_parallel/linear_init.h"
#include "lockstep/parallel/tensor_parallel/mappings.h"
#include "lockstep/parallel/wrapper.h"

namespace lockstep::tensor_parallel {
namespace {

constexpr Wrapper ROW{"RowParallelLinear"};

void check(std::int64_t in_features, std::int64_t out_features, const ProcessGroup& group,
           const RowParallelLinearOptions& options) {
  group.require_member(ROW.name);
  if (in_features < 1 || out_features < 1)
    ROW.refuse(group, lockstep::str("in_features is ", in_features, " and out_features ", out_features,
                                    "; both are at least 1"));
  if (in_features % group.size() != 0)
    ROW.refuse(group, lockstep::str("in_features is ", in_features, ", which ", group.size(),
                                    " ranks do not divide"));
  if (options.sequence_parallel && !options.input_is_parallel)
    ROW.refuse(group, "sequence_parallel needs an input that is parallel; input_is_parallel is false");
}

Partition weight_partition(std::int64_t in_features, std::int64_t out_features, WeightLayout layout,
                           const ProcessGroup& group) {
  return layout == WeightLayout::IN_OUT
             ? partition_of({in_features, out_features}, 0, {in_features}, group.rank(), group.size())
             : partition_of({out_features, in_features}, 1, {in_features}, group.rank(), group.size());
}

}  // namespace

RowParallelLinearImpl::RowParallelLinearImpl(std::int64_t in_features, std::int64_t out_features,
                                             const ProcessGroup& group, RowParallelLinearOptions options)
    : torch::nn::Module("lockstep::tensor_parallel::RowParallelLinear"),
      in_features_(in_features),
      out_features_(out_features),
      options_(std::move(options)),
      linear_{group, options_.sequence_parallel, options_.layout} {
  check(in_features, out_features, group, options_);
  const LinearInit init{in_features, options_.layout, options_.init};
  weight = register_parameter(
      "weight",
      draw_piece(weight_partition(in_features, out_features, options_.layout, group), init.weight()));
  if (!options_.bias) return;
  bias = register_parameter(
      "bias", draw_piece({.shape = {out_features}, .dim = 0, .stretches = {{0, out_features}}}, init.bias()));
}

at::Tensor RowParallelLinearImpl::forward(const at::Tensor& input) {
  const at::Tensor own =
      options_.input_is_parallel ? input : scatter_to_tensor_model_parallel_region(input, linear_.group);
  return row_parallel_linear(own, weight, bias, linear_);
}

std::vector<ParameterPiece> RowParallelLinearImpl::pieces() const {
  return {{"weight", weight_partition(in_features_, out_features_, options_.layout, linear_.group), weight}};
}

void RowParallelLinearImpl::pretty_print(std::ostream& stream) const {
  stream << name() << "(in_features=" << in_features_ << ", out_features=" << out_features_
         << ", ranks=" << linear_.group.size() << ")";
}

}  // namespace lockstep::tensor_parallel
