// GroupBackend: a group of Lockstep as a backend of torch.distributed (c10d::Backend). Python programs get it
// by init_process_group("lockstep"); docs/python.md is for their authors.
//
//   auto backend = c10::make_intrusive<GroupBackend>(group, "lockstep", std::chrono::minutes(30));
//   process_group->setBackend(at::kCPU, c10d::ProcessGroup::BackendType::CUSTOM, backend);
//
// Verbs       all that Gloo has, on CPU tensors of any layout; the coalesced verbs; startCoalescing(). They
//             are the verbs of lockstep/tensor.
// Blocks      with asyncOp = false until the call is done; else the returned GroupWork is to be waited for.
// Ranks       are those of the group, as c10d has them.
// Buckets     of DDP move into the group's memory at their first all_reduce (shared_blocks.h).
// Hooks       A collective that Python makes during backward starts when the futures of earlier calls are
//             complete. So calls that a hook's callbacks make come at the same place on all ranks.
// Fails       failure.h.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/compat/c10d/completion.h"
#include "lockstep/compat/c10d/group_work.h"
#include "lockstep/compat/c10d/shared_blocks.h"

namespace lockstep::compat::torch_backend {

class GroupBackend : public c10d::Backend {
 public:
  using TorchWork = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<Tensors>;

  // `name` is what torch calls the backend.
  GroupBackend(ProcessGroup group, std::string name, std::chrono::milliseconds timeout);
  ~GroupBackend() override;

  const ProcessGroup& group() const { return group_; }

  const std::string getBackendName() const override { return name_; }
  bool supportsSplitting() const override { return true; }
  bool supportsCoalescing() const override { return true; }
  c10::intrusive_ptr<Options> getBackendOptions() override;
  void setTimeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }
  c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                    const std::vector<int>& ranks,
                                    const c10::intrusive_ptr<Options>& opts) override;

  TorchWork broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  TorchWork allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  TorchWork allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  TorchWork allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override;
  TorchWork reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  TorchWork allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  TorchWork _allgather_base(at::Tensor& output, at::Tensor& input,
                            const c10d::AllgatherOptions& opts) override;
  TorchWork allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                const c10d::AllgatherOptions& opts) override;
  TorchWork allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                            const c10d::AllgatherOptions& opts) override;
  TorchWork gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override;
  TorchWork scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) override;
  TorchWork reduce_scatter(Tensors& outputs, TensorLists& inputs,
                           const c10d::ReduceScatterOptions& opts) override;
  TorchWork _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                 const c10d::ReduceScatterOptions& opts) override;
  TorchWork reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                            const c10d::ReduceScatterOptions& opts) override;
  TorchWork alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                          std::vector<std::int64_t>& input_splits,
                          const c10d::AllToAllOptions& opts) override;
  TorchWork alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
  TorchWork send(Tensors& tensors, int destination, int tag) override;
  TorchWork recv(Tensors& tensors, int source, int tag) override;
  TorchWork recvAnysource(Tensors& tensors, int tag) override;
  TorchWork barrier(const c10d::BarrierOptions& opts) override;
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

  void startCoalescing() override;
  TorchWork endCoalescing() override;
  void setSequenceNumberForGroup() override {}  // all ranks count from 0
  std::uint64_t getSequenceNumberForGroup() override { return sequence_; }

  bool supportsTensorAlloc(c10::DeviceIndex index) override;
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;

  c10d::ErrorType getError() override { return error_; }
  void abort() override;
  void shutdown() override;
  void leave();  // the group; later calls throw

 private:
  struct Start;  // what a verb tells start()
  template <typename Call> TorchWork start(const Start& verb, Call&& call);
  TorchWork made(const Start& verb, GroupWork::CoreWorks works, bool is_done);
  void wait_for_callbacks(const Start& verb);

  const ProcessGroup group_;
  const std::string name_;
  const std::chrono::milliseconds usual_timeout_;   // the core's for this group
  std::atomic<std::chrono::milliseconds> timeout_;  // setTimeout()'s, for each call
  std::atomic<std::uint64_t> sequence_ = 0;
  std::atomic<c10d::ErrorType> error_ = c10d::ErrorType::SUCCESS;
  const std::shared_ptr<SharedBlocks> blocks_;
  const std::shared_ptr<Completion> completion_;
  std::optional<GroupWork::CoreWorks> coalesced_;  // between startCoalescing() and endCoalescing()
};

}  // namespace lockstep::compat::torch_backend
