#include "lockstep/parallel/tensor_parallel/parallel_self_attention.h"

#include <ATen/ops/scaled_dot_product_attention.h>

#include <optional>
#include <utility>

#include "lockstep/base/str.h"
#include "lockstep/parallel/context_parallel/ring_attention.h"
#include "lockstep/parallel/tensor_parallel/random.h"
#include "lockstep/parallel/wrapper.h"

namespace lockstep::tensor_parallel {
namespace {

constexpr Wrapper ATTENTION{"ParallelSelfAttention"};

void check(const TransformerConfig& config, const ProcessGroup& group) {
  group.require_member(ATTENTION.name);
  const std::int64_t heads = config.num_attention_heads, groups = config.query_groups();
  if (heads < 1 || config.hidden_size < 1 || config.hidden_size % heads != 0)
    ATTENTION.refuse(group, lockstep::str("num_attention_heads is ", heads,
                                          ", which does not divide hidden_size ", config.hidden_size));
  if (heads % groups != 0)
    ATTENTION.refuse(group, lockstep::str("num_query_groups is ", groups,
                                          ", which does not divide num_attention_heads ", heads));
  if (heads % group.size() != 0)
    ATTENTION.refuse(group, lockstep::str("num_attention_heads is ", heads, ", which ", group.size(),
                                          " ranks do not divide"));
  if (groups % group.size() != 0)
    ATTENTION.refuse(group, lockstep::str("num_query_groups is ", groups, ", which ", group.size(),
                                          " ranks do not divide"));
  if (config.context_group && config.context_group->size() > 1 && config.attention_dropout > 0)
    ATTENTION.refuse(group, lockstep::str("attention_dropout is ", config.attention_dropout,
                                          "; ring attention over a context group has none, so it must be 0"));
}

}  // namespace

ParallelSelfAttentionImpl::ParallelSelfAttentionImpl(TransformerConfig config, const ProcessGroup& group)
    : config_(std::move(config)), group_(group) {
  check(config_, group);
  const std::int64_t hidden = config_.hidden_size;
  const std::int64_t groups = hidden / config_.num_attention_heads * config_.query_groups();
  const ColumnParallelLinearOptions qkv{.sequence_parallel = config_.sequence_parallel,
                                        .layout = config_.layout,
                                        .blocks = {hidden, groups, groups},
                                        .init = config_.init_method};
  const RowParallelLinearOptions proj{.sequence_parallel = config_.sequence_parallel,
                                      .layout = config_.layout,
                                      .init = config_.output_init()};
  linear_qkv = register_module(config_.names.linear_qkv,
                               ColumnParallelLinear(hidden, hidden + 2 * groups, group, qkv));
  linear_proj = register_module(config_.names.linear_proj, RowParallelLinear(hidden, hidden, group, proj));
}

at::Tensor ParallelSelfAttentionImpl::forward(const at::Tensor& input) {
  if (input.dim() != 3)
    ATTENTION.refuse(group_, lockstep::str("the input has sizes ", input.sizes(), "; expected ",
                                           config_.batch_first ? "[batch, sequence, " : "[sequence, batch, ",
                                           config_.hidden_size, "]"));
  const at::Tensor qkv = linear_qkv(input);
  const std::int64_t head_size = config_.hidden_size / config_.num_attention_heads;
  const std::int64_t queries = config_.hidden_size / group_.size();
  const std::int64_t keys = head_size * config_.query_groups() / group_.size();
  std::vector<at::Tensor> parts = qkv.split_with_sizes({queries, keys, keys}, -1);
  for (at::Tensor& part : parts) {  // [batch, heads, sequence, head_size]
    part = part.view({part.size(0), part.size(1), part.size(2) / head_size, head_size});
    part = config_.batch_first ? part.transpose(1, 2) : part.permute({1, 2, 0, 3});
  }
  const at::Tensor heads = attend(parts[0], parts[1], parts[2]);
  const at::Tensor order = config_.batch_first ? heads.transpose(1, 2) : heads.permute({2, 0, 1, 3});
  return linear_proj(order.reshape({qkv.size(0), qkv.size(1), queries}));
}

at::Tensor ParallelSelfAttentionImpl::attend(const at::Tensor& query, const at::Tensor& key,
                                             const at::Tensor& value) const {
  if (config_.context_group && config_.context_group->size() > 1)
    return context_parallel::ring_attention(query, key, value, *config_.context_group,
                                            {.is_causal = config_.is_causal});
  const double dropout = is_training() ? config_.attention_dropout : 0.0;
  std::optional<ForkedRandom> forked;
  if (dropout > 0) forked.emplace(group_, query.device());
  return at::scaled_dot_product_attention(query, key, value, /*attn_mask=*/{}, dropout, config_.is_causal,
                                          /*scale=*/{}, /*enable_gqa=*/key.size(1) != query.size(1));
}

}  // namespace lockstep::tensor_parallel
