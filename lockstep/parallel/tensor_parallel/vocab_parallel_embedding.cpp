#include "lockstep/parallel/tensor_parallel/vocab_parallel_embedding.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "lockstep/base/str.h"
#include "lockstep/comm/purpose.h"
#include "lockstep/parallel/tensor_parallel/exchange_memory.h"
#include "lockstep/parallel/tensor_parallel/group_holder.h"
#include "lockstep/parallel/tensor_parallel/region_steps.h"
#include "lockstep/parallel/wrapper.h"
#include "lockstep/tensor/collectives.h"

namespace lockstep::tensor_parallel {
namespace {

using Tensors = torch::autograd::variable_list;
using torch::autograd::AutogradContext;

constexpr Wrapper EMBEDDING{"VocabParallelEmbedding"};

void check_sizes(std::int64_t num_embeddings, std::int64_t embedding_dim, const ProcessGroup& group) {
  group.require_member(EMBEDDING.name);
  if (num_embeddings < group.size() || embedding_dim < 1)
    EMBEDDING.refuse(group, lockstep::str("num_embeddings is ", num_embeddings, " and embedding_dim ",
                                          embedding_dim, "; each rank holds at least one row and column"));
}

void check_tokens(const at::Tensor& tokens, std::int64_t num_embeddings, const ProcessGroup& group) {
  if (tokens.scalar_type() != at::kLong && tokens.scalar_type() != at::kInt)
    EMBEDDING.refuse(
        group, lockstep::str("tokens are ", toString(tokens.scalar_type()), ", expected int64 or int32"));
  if (tokens.numel() == 0) return;
  const auto smallest = tokens.min().item<std::int64_t>();
  const auto largest = tokens.max().item<std::int64_t>();
  if (smallest < 0 || largest >= num_embeddings)
    EMBEDDING.refuse(group, lockstep::str("token ", smallest < 0 ? smallest : largest,
                                          " is not between 0 and ", num_embeddings - 1));
}

// This rank's tokens: where they are among all, and the rows of its weight that they have.
struct OwnTokens {
  at::Tensor positions, rows;

  OwnTokens(const at::Tensor& tokens, Stretch range) {
    const at::Tensor flat = tokens.flatten().to(at::kLong) - range.begin;
    positions = flat.ge(0).logical_and_(flat.lt(range.size)).nonzero().squeeze(1);
    rows = flat.index_select(0, positions);
  }
};

// Each rank puts the rows that it has into memory that can be reduced in place, and zeros for the others.
class Lookup : public torch::autograd::Function<Lookup> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& weight, const OwnTokens& own,
                            at::IntArrayRef sizes, bool reduce_scatters, const ProcessGroup& group) {
    context->save_for_backward({own.positions, own.rows});
    context->saved_data["rows"] = weight.size(0);
    context->saved_data["reduce_scatters"] = reduce_scatters;
    save_group(*context, group);
    at::Tensor result = exchange_empty(sizes, weight.options(), group);
    result.zero_().view({-1, weight.size(1)}).index_copy_(0, own.positions, weight.index_select(0, own.rows));
    if (reduce_scatters) return region_step(RegionStep::REDUCE_SCATTER_FIRST, result, group);
    const Acting acting(Purpose::TENSOR_PARALLEL);
    all_reduce(result, ReduceOp::SUM, group);
    return result;
  }

  static Tensors backward(AutogradContext* context, const Tensors& incoming) {
    const Tensors saved = context->get_saved_variables();
    const bool gathers = context->saved_data["reduce_scatters"].toBool();
    const at::Tensor whole =
        gathers ? region_step(RegionStep::GATHER_FIRST, incoming[0], saved_group(*context)) : incoming[0];
    const at::Tensor own = whole.reshape({-1, whole.size(-1)}).index_select(0, saved[0]);
    Tensors gradients(5);
    gradients[0] = at::embedding_dense_backward(own, saved[1], context->saved_data["rows"].toInt(),
                                                /*padding_idx=*/-1, /*scale_grad_by_freq=*/false);
    return gradients;
  }
};

}  // namespace

VocabParallelEmbeddingImpl::VocabParallelEmbeddingImpl(std::int64_t num_embeddings,
                                                       std::int64_t embedding_dim, const ProcessGroup& group,
                                                       VocabParallelEmbeddingOptions options)
    : torch::nn::Module("lockstep::tensor_parallel::VocabParallelEmbedding"),
      num_embeddings_(num_embeddings),
      embedding_dim_(embedding_dim),
      options_(std::move(options)),
      group_(group),
      rows_(vocab_range(num_embeddings, group.rank(), group.size())) {
  check_sizes(num_embeddings, embedding_dim, group);
  const InitMethod normal = [](const at::Tensor& whole) { whole.normal_(); };
  weight =
      register_parameter("weight", draw_piece(pieces()[0].partition, options_.init ? options_.init : normal));
}

at::Tensor VocabParallelEmbeddingImpl::forward(const at::Tensor& tokens) {
  check_tokens(tokens, num_embeddings_, group_);
  std::vector<std::int64_t> sizes = tokens.sizes().vec();
  sizes.push_back(embedding_dim_);
  if (group_.size() == 1) return at::embedding(weight, tokens);
  const bool reduce_scatters = options_.reduce_scatter_embeddings;
  if (reduce_scatters) {
    expect_step(EMBEDDING.name, RegionStep::REDUCE_SCATTER_FIRST, tokens, group_);
  }
  return Lookup::apply(weight, OwnTokens(tokens, rows_), at::IntArrayRef(sizes), reduce_scatters, group_);
}

std::vector<ParameterPiece> VocabParallelEmbeddingImpl::pieces() const {
  return {{"weight", {.shape = {num_embeddings_, embedding_dim_}, .dim = 0, .stretches = {rows_}}, weight}};
}

void VocabParallelEmbeddingImpl::pretty_print(std::ostream& stream) const {
  stream << name() << "(" << num_embeddings_ << ", " << embedding_dim_ << ", ranks=" << group_.size() << ")";
}

}  // namespace lockstep::tensor_parallel
