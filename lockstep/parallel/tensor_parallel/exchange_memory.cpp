#include "lockstep/parallel/tensor_parallel/exchange_memory.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lockstep::tensor_parallel {
namespace {

// Idle memory of one group.
class IdleBlocks {
 public:
  std::shared_ptr<void> take(std::size_t bytes, const ProcessGroup& group) {
    {
      const std::lock_guard lock(mutex_);
      const auto found = blocks_.find(bytes);
      if (found != blocks_.end()) {
        std::shared_ptr<void> block = std::move(found->second);
        blocks_.erase(found);
        return block;
      }
      blocks_.clear();  // of other sizes
    }
    return group.allocate_shared(bytes);
  }

  void put(std::size_t bytes, std::shared_ptr<void> block) {
    const std::lock_guard lock(mutex_);
    blocks_.emplace(bytes, std::move(block));
  }

 private:
  std::mutex mutex_;
  std::multimap<std::size_t, std::shared_ptr<void>> blocks_;  // by bytes
};

// A group is known by its backend. A new one may have the address of one that is gone, so the old one's idle
// memory is dropped with it.
struct IdleOfGroup {
  std::weak_ptr<Backend> backend;
  std::shared_ptr<IdleBlocks> blocks;
};

std::shared_ptr<IdleBlocks> idle_blocks_of(const ProcessGroup& group) {
  static std::mutex mutex;
  static auto* const groups = new std::unordered_map<const Backend*, IdleOfGroup>;  // never destroyed
  const std::lock_guard lock(mutex);
  const std::shared_ptr<Backend> backend = group.shared_backend();
  const auto found = groups->find(backend.get());
  if (found != groups->end() && !found->second.backend.expired()) return found->second.blocks;
  std::erase_if(*groups, [](const auto& entry) { return entry.second.backend.expired(); });
  auto blocks = std::make_shared<IdleBlocks>();
  (*groups)[backend.get()] = {.backend = backend, .blocks = blocks};
  return blocks;
}

std::size_t bytes_of(at::IntArrayRef sizes, const at::TensorOptions& options) {
  std::size_t bytes = options.dtype().itemsize();
  for (const std::int64_t size : sizes) bytes *= static_cast<std::size_t>(size);
  return bytes;
}

}  // namespace

at::Tensor exchange_empty(at::IntArrayRef sizes, const at::TensorOptions& options,
                          const ProcessGroup& group) {
  const std::size_t bytes = bytes_of(sizes, options);
  const at::TensorOptions plain = at::TensorOptions(options.dtype()).device(options.device());
  if (group.size() == 1 || bytes == 0 || !options.device().is_cpu()) return at::empty(sizes, plain);
  const std::shared_ptr<IdleBlocks> idle = idle_blocks_of(group);
  std::shared_ptr<void> block = idle->take(bytes, group);
  void* const memory = block.get();
  const auto give_back = [weak = std::weak_ptr(idle), bytes, block = std::move(block)](void*) mutable {
    if (const auto to = weak.lock()) to->put(bytes, std::move(block));
  };
  return at::from_blob(memory, sizes, give_back, plain);
}

at::Tensor exchange_copy(const at::Tensor& tensor, const ProcessGroup& group) {
  at::Tensor copy = exchange_empty(tensor.sizes(), tensor.options(), group);
  return copy.copy_(tensor);
}

}  // namespace lockstep::tensor_parallel
