#include "lockstep/parallel/tensor_parallel/random.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <torch/utils.h>

#include <mutex>
#include <span>
#include <vector>

#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/all_gather.h"
#include "lockstep/parallel/virtual_ranks/rank_seed.h"
#include "lockstep/parallel/wrapper.h"

namespace lockstep::tensor_parallel {

void model_parallel_manual_seed(std::uint64_t seed, const ProcessGroup& group) {
  constexpr Wrapper HERE{"model_parallel_manual_seed"};
  group.require_member(HERE.name);
  std::vector<std::uint64_t> seeds(static_cast<std::size_t>(group.size()));
  comm::all_gather(group, std::span<const std::uint64_t>(&seed, 1), std::span(seeds));
  for (std::size_t r = 0; r < seeds.size(); ++r)
    if (seeds[r] != seeds[0])
      HERE.refuse(group, lockstep::str("rank ", r, " has the seed ", seeds[r], " and rank 0 ", seeds[0],
                                       "; all ranks of a tensor-parallel group draw the same weights"));
  torch::manual_seed(seed);
}

ForkedRandom::ForkedRandom(const ProcessGroup& group, c10::Device device)
    : generator_(at::globalContext().defaultGenerator(device)) {
  group.require_member("ForkedRandom");
  const at::Tensor number = at::empty({}, at::TensorOptions(at::kLong).device(device)).random_();
  const auto seed = static_cast<std::uint64_t>(number.item<std::int64_t>());
  const std::lock_guard lock(generator_.mutex());
  before_ = generator_.get_state();
  generator_.set_current_seed(mixed_seed(seed + static_cast<std::uint64_t>(group.rank())));
}

ForkedRandom::~ForkedRandom() {
  const std::lock_guard lock(generator_.mutex());
  generator_.set_state(before_);
}

}  // namespace lockstep::tensor_parallel
