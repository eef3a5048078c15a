#include "lockstep/parallel/context_parallel/ring_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <cmath>
#include <utility>
#include <vector>

#include "lockstep/base/str.h"
#include "lockstep/comm/purpose.h"
#include "lockstep/parallel/context_parallel/sequence_chunks.h"
#include "lockstep/parallel/wrapper.h"
#include "lockstep/tensor/collectives.h"

namespace lockstep::context_parallel {
namespace {

using Tensors = torch::autograd::variable_list;
using torch::autograd::AutogradContext;

constexpr Wrapper RING{"ring_attention"};
constexpr std::int64_t SEQUENCE = 2;  // dimension of [batch, heads, sequence, size]

at::Tensor first_half(const at::Tensor& tensor) {
  return tensor.narrow(SEQUENCE, 0, tensor.size(SEQUENCE) / 2);
}
at::Tensor second_half(const at::Tensor& tensor) {
  const std::int64_t half = tensor.size(SEQUENCE) / 2;
  return tensor.narrow(SEQUENCE, half, half);
}

// The queries, and what belongs to them, that take part in a meeting; and the keys.
at::Tensor of_queries(const at::Tensor& tensor, const Meeting& meeting) {
  return meeting.queries == QueryPart::ALL ? tensor : second_half(tensor);
}
at::Tensor of_keys(const at::Tensor& tensor, const Meeting& meeting) {
  return meeting.keys == KeyPart::ALL ? tensor : first_half(tensor);
}

// One head of keys for each head of queries.
at::Tensor repeated(const at::Tensor& keys, std::int64_t heads) {
  const std::int64_t times = heads / keys.size(1);
  return times == 1 ? keys : keys.repeat_interleave(times, 1);
}
at::Tensor summed(const at::Tensor& gradient, std::int64_t heads) {
  const std::int64_t times = gradient.size(1) / heads;
  return times == 1 ? gradient : gradient.unflatten(1, {heads, times}).sum(2);
}

// A tensor on its way round the ring: to the next rank, and another one from the previous.
class Passage {
 public:
  explicit Passage(const ProcessGroup& group) : group_(group) {}

  // Starts to pass `own` on.
  void start(const at::Tensor& own) {
    if (group_.size() == 1) return;
    const Acting acting(Purpose::CONTEXT_PARALLEL);
    coming_ = at::empty_like(own);
    const GroupRank next{(group_.rank() + 1) % group_.size()};
    const GroupRank before{(group_.rank() + group_.size() - 1) % group_.size()};
    works_ = batch_isend_irecv({{isend, own, next, group_}, {irecv, coming_, before, group_}});
  }
  // Waits for both and returns what has come.
  at::Tensor finish() {
    for (Work& work : works_) work.wait();
    works_.clear();
    return std::exchange(coming_, at::Tensor());
  }

 private:
  const ProcessGroup group_;
  at::Tensor coming_;
  std::vector<Work> works_;
};

// Output and logarithm of the sum of exponentials over the keys that were seen so far.
struct Merged {
  at::Tensor output, log_sum;

  explicit Merged(const at::Tensor& query)
      : output(at::zeros_like(query, at::MemoryFormat::Contiguous)),
        log_sum(at::full({query.size(0), query.size(1), query.size(SEQUENCE)}, -INFINITY, query.options())) {}

  void add(const Meeting& meeting, const at::Tensor& block, const at::Tensor& block_log_sum) {
    at::Tensor own = of_queries(output, meeting), own_sum = of_queries(log_sum, meeting);
    const at::Tensor joined = at::logaddexp(own_sum, block_log_sum);
    own.mul_((own_sum - joined).exp_().unsqueeze(-1));
    own.add_(block * (block_log_sum - joined).exp_().unsqueeze(-1));
    own_sum.copy_(joined);
  }
};

struct Ring : torch::CustomClassHolder {
  Ring(ProcessGroup of, const RingAttentionOptions& with) : group(std::move(of)), options(with) {}

  Meeting meeting(int step) const { return meeting_of(group.rank(), key_rank(step), options.is_causal); }
  int key_rank(int step) const { return key_rank_of(group.rank(), step, group.size()); }
  bool is_last(int step) const { return step == group.size() - 1; }

  ProcessGroup group;
  RingAttentionOptions options;
};

class RingAttention : public torch::autograd::Function<RingAttention> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& query, const at::Tensor& key,
                            const at::Tensor& value, const c10::intrusive_ptr<Ring>& ring) {
    Merged merged(query);
    Passage passage(ring->group);
    at::Tensor pair = at::stack({key, value});
    for (int step = 0; step < ring->group.size(); ++step) {
      if (!ring->is_last(step)) passage.start(pair);
      const Meeting meeting = ring->meeting(step);
      const auto [block, log_sum] = at::_scaled_dot_product_flash_attention_for_cpu(
          of_queries(query, meeting), repeated(of_keys(pair[0], meeting), query.size(1)),
          repeated(of_keys(pair[1], meeting), query.size(1)), /*dropout_p=*/0, meeting.is_causal,
          /*attn_mask=*/{}, ring->options.scale);
      merged.add(meeting, block, log_sum);
      if (!ring->is_last(step)) pair = passage.finish();
    }
    context->save_for_backward({query, key, value, merged.output, merged.log_sum});
    context->saved_data["ring"] = c10::IValue::make_capsule(ring);
    return merged.output;
  }

  static Tensors backward(AutogradContext* context, const Tensors& incoming) {
    if (at::GradMode::is_enabled())
      RING.refuse("backward(create_graph = true): there is no derivative of its gradient");
    const auto ring = c10::static_intrusive_pointer_cast<Ring>(context->saved_data["ring"].toCapsule());
    const Tensors saved = context->get_saved_variables();
    const at::Tensor gradient = incoming[0].contiguous();
    at::Tensor of_query = at::zeros_like(saved[0], at::MemoryFormat::Contiguous);
    Passage passage(ring->group), sums(ring->group);
    at::Tensor pair = at::stack({saved[1], saved[2]});
    at::Tensor of_pair;  // gradients of the keys and values that this rank holds, from the ranks so far
    for (int step = 0; step < ring->group.size(); ++step) {
      if (!ring->is_last(step)) passage.start(pair);
      const at::Tensor own = block_backward(*ring, step, saved, gradient, pair, of_query);
      of_pair = step == 0 ? own : sums.finish().add_(own);
      sums.start(of_pair);  // after the last step to their owner
      if (!ring->is_last(step)) pair = passage.finish();
    }
    if (ring->group.size() > 1) of_pair = sums.finish();
    return {of_query, of_pair[0], of_pair[1], at::Tensor()};
  }

 private:
  // Adds to `of_query`, and returns the gradients of `pair`.
  static at::Tensor block_backward(const Ring& ring, int step, const Tensors& saved,
                                   const at::Tensor& gradient, const at::Tensor& pair, at::Tensor& of_query) {
    const Meeting meeting = ring.meeting(step);
    const std::int64_t heads = saved[0].size(1);
    const auto [query, key, value] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        of_queries(gradient, meeting), of_queries(saved[0], meeting),
        repeated(of_keys(pair[0], meeting), heads), repeated(of_keys(pair[1], meeting), heads),
        of_queries(saved[3], meeting), of_queries(saved[4], meeting),
        /*dropout_p=*/0, meeting.is_causal, /*attn_mask=*/{}, ring.options.scale);
    of_queries(of_query, meeting).add_(query);
    at::Tensor own = at::zeros_like(pair);
    of_keys(own[0], meeting).copy_(summed(key, pair.size(2)));
    of_keys(own[1], meeting).copy_(summed(value, pair.size(2)));
    return own;
  }
};

void check(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
           const ProcessGroup& group) {
  group.require_member(RING.name);
  const auto refuse_sizes = [&](const char* expected) {
    RING.refuse(group, lockstep::str("query, key and value have sizes ", query.sizes(), ", ", key.sizes(),
                                     ", ", value.sizes(), "; ", expected));
  };
  if (query.dim() != 4 || key.dim() != 4 || key.sizes() != value.sizes())
    refuse_sizes("expected [batch, heads, sequence, size] thrice, key and value alike");
  if (query.size(0) != key.size(0) || query.size(2) != key.size(2) || query.size(3) != key.size(3))
    refuse_sizes("batch, sequence and size are the same for all");
  if (key.size(1) == 0 || query.size(1) % key.size(1) != 0)
    refuse_sizes("the heads of the keys divide those of the queries");
  if (query.size(2) % 2 != 0)
    RING.refuse(group, lockstep::str("this rank's sequence has ", query.size(2),
                                     " places, and is two chunks of equal length"));
  if (!query.device().is_cpu()) RING.refuse(group, "the tensors are not in CPU memory");
}

std::int64_t chunk_length(const char* function, std::int64_t length, std::int64_t chunks,
                          const ProcessGroup& group) {
  const Wrapper here{function};
  group.require_member(function);
  if (length % chunks != 0)
    here.refuse(group, lockstep::str("the sequence has ", length, " places, which ", chunks,
                                     " chunks do not divide"));
  return length / chunks;
}

}  // namespace

at::Tensor ring_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          const ProcessGroup& group, const RingAttentionOptions& options) {
  check(query, key, value, group);
  return RingAttention::apply(query, key, value, c10::make_intrusive<Ring>(group, options));
}

at::Tensor sequence_part(const at::Tensor& whole, std::int64_t dim, const ProcessGroup& group) {
  const std::int64_t length = chunk_length("sequence_part", whole.size(dim), 2 * group.size(), group);
  const Chunks chunks = chunks_of(group.rank(), group.size());
  return at::cat(
      {whole.narrow(dim, chunks.first * length, length), whole.narrow(dim, chunks.second * length, length)},
      dim);
}

at::Tensor sequence_whole(const at::Tensor& part, std::int64_t dim, const ProcessGroup& group) {
  const at::NoGradGuard no_grad;
  const std::int64_t length = chunk_length("sequence_whole", part.size(dim), 2, group);
  std::vector<at::Tensor> parts;
  const at::Tensor own = part.detach().contiguous();
  for (int r = 0; r < group.size(); ++r) parts.push_back(at::empty_like(own));
  all_gather(parts, own, group);
  std::vector<at::Tensor> chunks(2 * parts.size());
  for (int r = 0; r < group.size(); ++r) {
    const Chunks of = chunks_of(r, group.size());
    const at::Tensor& theirs = parts[static_cast<std::size_t>(r)];
    chunks[static_cast<std::size_t>(of.first)] = theirs.narrow(dim, 0, length);
    chunks[static_cast<std::size_t>(of.second)] = theirs.narrow(dim, length, length);
  }
  return at::cat(chunks, dim);
}

}  // namespace lockstep::context_parallel
