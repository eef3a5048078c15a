// SharedBlocks: tensors in the group's memory, for DDP's buckets and for programs that ask for such tensors.
// Collectives copy nothing there.
//
//   auto blocks = std::make_shared<SharedBlocks>(group);
//   blocks->adopt(bucket);                      // its storage moves into the group's memory, once
//   at::Tensor x = blocks->empty(1000, at::kFloat);
//
// Adopts      A tensor that is a bucket of c10d::Reducer, as far as can be seen: one-dimensional, contiguous,
//             its whole storage, at least 64 KiB, unknown to Python, and with other tensors in its storage
//             (the Reducer's views). All views follow, because the storage itself gets the new memory. Once
//             per bucket, one copy. Other tensors, and groups without common memory, stay as they are.
// Blocks      of empty() that are free are kept for tensors of the same size, as long as the group or a
//             tensor lives: FSDP2 makes the same ones in each step. Those of buckets go back to the group.
// Threads     any.
// Forks       A child that is forked later shares this memory with its parent, instead of having a copy of
// it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "lockstep/comm/process_group.h"

namespace lockstep::compat::torch_backend {

class SharedBlocks : public std::enable_shared_from_this<SharedBlocks> {
 public:
  explicit SharedBlocks(const ProcessGroup& group);

  // Whether the group has common memory.
  bool are_shared();
  void adopt(const at::Tensor& tensor);
  at::Tensor empty(std::int64_t count, const at::TensorOptions& options);

 private:
  struct Lease;
  bool is_bucket(const at::Tensor& tensor) const;
  std::shared_ptr<void> kept(std::size_t bytes);
  static c10::DataPtr lend(std::shared_ptr<void> memory, std::size_t bytes,
                           std::shared_ptr<SharedBlocks> keeper);
  static void give_back(void* lease);

  const std::shared_ptr<Backend> backend_;
  std::once_flag is_asked_;
  bool are_shared_ = false;
  std::mutex mutex_;
  std::map<std::size_t, std::vector<std::shared_ptr<void>>> free_;  // by size; guarded by the mutex
};

}  // namespace lockstep::compat::torch_backend
