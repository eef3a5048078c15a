#include "lockstep/parallel/tensor_parallel/column_parallel_linear.h"

#include <numeric>
#include <utility>

#include "lockstep/base/str.h"
#include "lockstep/parallel/tensor_parallel/linear_init.h"
#include "lockstep/parallel/tensor_parallel/mappings.h"
#include "lockstep/parallel/wrapper.h"

namespace lockstep::tensor_parallel {
namespace {

constexpr Wrapper COLUMN{"ColumnParallelLinear"};

// One block if there are none.
ColumnParallelLinearOptions completed(ColumnParallelLinearOptions options, std::int64_t out_features) {
  if (options.blocks.empty()) options.blocks = {out_features};
  return options;
}

void check_sizes(std::int64_t in_features, std::int64_t out_features, const std::vector<std::int64_t>& blocks,
                 const ProcessGroup& group) {
  group.require_member(COLUMN.name);
  if (in_features < 1 || out_features < 1)
    COLUMN.refuse(group, lockstep::str("in_features is ", in_features, " and out_features ", out_features,
                                       "; both are at least 1"));
  for (const std::int64_t block : blocks)
    if (block < 1 || block % group.size() != 0)
      COLUMN.refuse(
          group, lockstep::str(blocks.size() == 1 ? "out_features is " : "a block of out_features is ", block,
                               ", which ", group.size(), " ranks do not divide"));
  const std::int64_t sum = std::accumulate(blocks.begin(), blocks.end(), std::int64_t{0});
  if (sum != out_features)
    COLUMN.refuse(group, lockstep::str("the blocks add up to ", sum, ", and out_features is ", out_features));
}

}  // namespace

ColumnParallelLinearImpl::ColumnParallelLinearImpl(std::int64_t in_features, std::int64_t out_features,
                                                   const ProcessGroup& group,
                                                   ColumnParallelLinearOptions options)
    : torch::nn::Module("lockstep::tensor_parallel::ColumnParallelLinear"),
      in_features_(in_features),
      out_features_(out_features),
      options_(completed(std::move(options), out_features)),
      linear_{group, options_.sequence_parallel, options_.layout} {
  check_sizes(in_features, out_features, options_.blocks, group);
  const LinearInit init{in_features, options_.layout, options_.init};
  const auto registered = [&](const char* name, std::vector<std::int64_t> shape, std::int64_t dim,
                              const InitMethod& fill) {
    const Partition partition =
        partition_of(std::move(shape), dim, options_.blocks, group.rank(), group.size());
    return register_parameter(name, draw_piece(partition, fill));
  };
  const bool in_out = options_.layout == WeightLayout::IN_OUT;
  weight = in_out ? registered("weight", {in_features, out_features}, 1, init.weight())
                  : registered("weight", {out_features, in_features}, 0, init.weight());
  if (options_.bias) bias = registered("bias", {out_features}, 0, init.bias());
}

at::Tensor ColumnParallelLinearImpl::forward(const at::Tensor& input) {
  const at::Tensor own = column_parallel_linear(input, weight, bias, linear_);
  return options_.gather_output ? gather_from_tensor_model_parallel_region(own, linear_.group) : own;
}

std::vector<ParameterPiece> ColumnParallelLinearImpl::pieces() const {
  const ProcessGroup& group = linear_.group;
  const bool in_out = options_.layout == WeightLayout::IN_OUT;
  std::vector<std::int64_t> shape = {out_features_, in_features_};
  if (in_out) std::swap(shape[0], shape[1]);
  std::vector<ParameterPiece> pieces;
  pieces.push_back(
      {"weight", partition_of(shape, in_out ? 1 : 0, options_.blocks, group.rank(), group.size()), weight});
  if (bias.defined())
    pieces.push_back(
        {"bias", partition_of({out_features_}, 0, options_.blocks, group.rank(), group.size()), bias});
  return pieces;
}

void ColumnParallelLinearImpl::pretty_print(std::ostream& stream) const {
  stream << name() << "(in_features=" << in_features_ << ", out_features=" << out_features_
         << ", ranks=" << linear_.group.size() << ")";
}

}  // namespace lockstep::tensor_parallel
