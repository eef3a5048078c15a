// VocabParallelEmbedding: an embedding whose rows are shared out over the ranks of a tensor-parallel group.
//
//   namespace tp = dist::tensor_parallel;
//   tp::VocabParallelEmbedding wte(50257, 768, group);
//   at::Tensor x = wte(tokens);                              // [..., 768] on all ranks, one all_reduce
//
// An output layer whose weight is tied to it:
//
//   at::Tensor logits = tp::column_parallel_linear(x, wte->weight, {}, {.group = group});
//
// Rows        of rank r are vocab_range(num_embeddings, r, ranks). Their number may differ by one, so a
//             vocabulary need not be padded. Each rank looks up the tokens that it has; the ranks'
//             results, in which the other tokens' rows are zero, are added in place (exchange_memory.h).
// Weight      "weight" [rows of this rank, embedding_dim]. Initial values are those of
//             torch::nn::Embedding with the same seed, or those of `init`, and do not depend on the
//             number of ranks.
// Gradients   Backward exchanges nothing: each rank adds up the gradients of its own rows.
// Fails       InvalidArgument: fewer rows than ranks, sizes below 1, tokens that are not integers, a
//             token below 0 or not below num_embeddings.
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/tensor_parallel/parameter_piece.h"

namespace lockstep::tensor_parallel {

struct VocabParallelEmbeddingOptions {
  // The result is this rank's part along dimension 0, by a reduce_scatter.
  bool reduce_scatter_embeddings = false;
  InitMethod init = {};  // of the whole weight; default: normal, of deviation 1
};

class VocabParallelEmbeddingImpl : public torch::nn::Module, public HasPieces {
 public:
  VocabParallelEmbeddingImpl(std::int64_t num_embeddings, std::int64_t embedding_dim,
                             const ProcessGroup& group, VocabParallelEmbeddingOptions options = {});

  at::Tensor forward(const at::Tensor& tokens);
  std::vector<ParameterPiece> pieces() const override;
  void pretty_print(std::ostream& stream) const override;

  Stretch rows() const { return rows_; }

  at::Tensor weight;

 private:
  const std::int64_t num_embeddings_, embedding_dim_;
  const VocabParallelEmbeddingOptions options_;
  const ProcessGroup group_;
  const Stretch rows_;
};
TORCH_MODULE(VocabParallelEmbedding);

}  // namespace lockstep::tensor_parallel
