#include "lockstep/models/gpt2_parallel_generate.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "lockstep/parallel/context_parallel/ring_attention.h"
#include "lockstep/parallel/tensor_parallel/parameter_piece.h"
#include "lockstep/tensor/collectives.h"

namespace lockstep::models::parts {
namespace {

// Divides the length of every sequence. A context-parallel rank has two chunks of it.
std::int64_t divisor(const Sharing& sharing) {
  const std::int64_t tensor = sharing.sequence_parallel ? sharing.group.size() : 1;
  return sharing.context ? sharing.context->size() * std::lcm(std::int64_t{2}, tensor) : tensor;
}

// [n, rows]. The rank that has the place in its part of the sequence gives it to those that have not.
at::Tensor own_rows_at(std::int64_t place, const at::Tensor& logits, std::int64_t length,
                       const Sharing& sharing) {
  const std::int64_t dim = sharing.sequence_parallel ? 0 : 1;
  if (!sharing.context) return logits.select(dim, place).contiguous();
  const at::Tensor places = context_parallel::sequence_part(
      at::arange(length, logits.options().dtype(at::kLong)), 0, *sharing.context);
  const at::Tensor here = places.eq(place).nonzero();
  at::Tensor own = here.numel() > 0 ? logits.select(dim, here.item<std::int64_t>()).contiguous()
                                    : at::zeros_like(logits.select(dim, 0), at::MemoryFormat::Contiguous);
  all_reduce(own, ReduceOp::SUM, *sharing.context);
  return own;
}

}  // namespace

GenerateOptions bounded(const GenerateOptions& options, const GPT2Config& config, const Sharing& sharing) {
  const std::int64_t longest = config.n_positions / divisor(sharing) * divisor(sharing);
  GenerateOptions within = options;
  if (options.context == 0 || options.context > longest) within.context = longest;
  return within;
}

at::Tensor padded(const at::Tensor& window, const Sharing& sharing) {
  const std::int64_t length = window.size(1), over = length % divisor(sharing);
  return over == 0 ? window : at::constant_pad_nd(window, {0, divisor(sharing) - over}, 0);
}

at::Tensor logits_at(std::int64_t place, const at::Tensor& logits, std::int64_t length,
                     const GPT2Config& config, const Sharing& sharing) {
  const at::Tensor own = own_rows_at(place, logits, length, sharing);
  std::vector<at::Tensor> of_all;
  for (int rank = 0; rank < sharing.group.size(); ++rank) {
    const auto rows = tensor_parallel::vocab_range(config.vocab_size, rank, sharing.group.size());
    of_all.push_back(at::empty({own.size(0), rows.size}, own.options()));
  }
  all_gather(of_all, own, sharing.group);
  return at::cat(of_all, 1).unsqueeze(1);
}

at::Tensor agreed(const at::Tensor& next, const Sharing& sharing) {
  broadcast(next, GroupRank{0}, sharing.group);
  if (sharing.context) broadcast(next, GroupRank{0}, *sharing.context);
  return next;
}

}  // namespace lockstep::models::parts
