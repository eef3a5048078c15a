#include "lockstep/compat/c10d/shared_blocks.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/impl/PyObjectSlot.h>

#include <cstring>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::compat::torch_backend {
namespace {

constexpr std::size_t SMALLEST_BUCKET = std::size_t{64} << 10U;  // below, a copy costs less than the search

}  // namespace

struct SharedBlocks::Lease {
  std::shared_ptr<SharedBlocks> blocks;  // null: the block goes back to the group
  std::shared_ptr<void> memory;
  std::size_t bytes;
};

SharedBlocks::SharedBlocks(const ProcessGroup& group) : backend_(group.shared_backend()) {}

// Asked at the first use, because another rank may end the group while this one still makes it.
bool SharedBlocks::are_shared() {
  std::call_once(is_asked_, [&] {
    if (backend_->size() == 1) return;
    try {
      const std::shared_ptr<void> trial = backend_->allocate_shared(1);
      // hierarchical does not say where its memory lies; where no two ranks share a machine, it is plain
      // memory
      are_shared_ = backend_->place_of(trial.get()).has_value() || backend_->name() == "hierarchical";
    } catch (const Error&) {  // the group has failed, which the next call says
    }
  });
  return are_shared_;
}

std::shared_ptr<void> SharedBlocks::kept(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  auto& same = free_[bytes];
  if (same.empty()) return nullptr;
  std::shared_ptr<void> memory = std::move(same.back());
  same.pop_back();
  return memory;
}

c10::DataPtr SharedBlocks::lend(std::shared_ptr<void> memory, std::size_t bytes,
                                std::shared_ptr<SharedBlocks> keeper) {
  void* const place = memory.get();
  return {place, new Lease{std::move(keeper), std::move(memory), bytes}, &give_back, c10::kCPU};
}

void SharedBlocks::give_back(void* lease) {
  const std::unique_ptr<Lease> ended(static_cast<Lease*>(lease));
  if (!ended->blocks) return;
  const std::lock_guard lock(ended->blocks->mutex_);
  ended->blocks->free_[ended->bytes].push_back(std::move(ended->memory));
}

bool SharedBlocks::is_bucket(const at::Tensor& tensor) const {
  if (!tensor.device().is_cpu() || tensor.layout() != at::kStrided || tensor.dim() != 1) return false;
  const c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  return storage->nbytes() >= SMALLEST_BUCKET && tensor.is_contiguous() && tensor.storage_offset() == 0 &&
         tensor.nbytes() == storage->nbytes() && tensor.storage().use_count() > 1 &&
         tensor.unsafeGetTensorImpl()->pyobj_slot()->load_pyobj() == nullptr &&
         storage->data_ptr().get_deleter() != &give_back;
}

void SharedBlocks::adopt(const at::Tensor& tensor) {
  if (!is_bucket(tensor) || !are_shared()) return;
  const std::size_t bytes = tensor.nbytes();
  try {
    c10::DataPtr block = lend(backend_->allocate_shared(bytes), bytes, nullptr);
    std::memcpy(block.get(), tensor.const_data_ptr(), bytes);
    tensor.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(block));
  } catch (const Error&) {  // the segment is full, or the group has failed: the bucket stays where it is
  }
}

at::Tensor SharedBlocks::empty(std::int64_t count, const at::TensorOptions& options) {
  const std::size_t bytes = static_cast<std::size_t>(count) * options.dtype().itemsize();
  if (bytes == 0 || !are_shared()) return at::empty({count}, options);
  std::shared_ptr<void> memory = kept(bytes);
  if (!memory) memory = backend_->allocate_shared(bytes);
  c10::DataPtr block = lend(std::move(memory), bytes, shared_from_this());
  void* const place = block.get();
  return at::for_blob(place, {count})
      .context(block.release_context(), &give_back)
      .options(options)
      .make_tensor();
}

}  // namespace lockstep::compat::torch_backend
