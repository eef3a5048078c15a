#include "lockstep/tensor/parted_memory.h"

#include <algorithm>
#include <mutex>
#include <shared_mutex>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

// Outlives static destructors, because tensors may.
struct PartedMemories {
  std::shared_mutex mutex;
  std::vector<const PartedMemory*> all;
};
PartedMemories& parted_memories() {
  static auto* const instance = new PartedMemories;
  return *instance;
}

}  // namespace

PartedMemory::PartedMemory(std::function<bool(const at::Tensor&)> lacks) : lacks_(std::move(lacks)) {
  const std::unique_lock lock(parted_memories().mutex);
  parted_memories().all.push_back(this);
}

PartedMemory::~PartedMemory() {
  const std::unique_lock lock(parted_memories().mutex);
  std::erase(parted_memories().all, this);
}

void refuse_parted(std::string_view who, const std::string& name, const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return;
  const std::shared_lock lock(parted_memories().mutex);
  const auto& all = parted_memories().all;
  if (std::none_of(all.begin(), all.end(), [&](const auto* memory) { return memory->lacks(tensor); })) return;
  throw InvalidArgument(str(who, ": each rank has a part alone of tensor ", in_quotes(name),
                            " (ShardedDataParallel, stage 3). Save the wrapper, by state.add(name, model) or "
                            "write_full_state_dict(path, model), or save within model.read_parameters()"));
}

}  // namespace lockstep
