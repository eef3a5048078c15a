// Horovod's verbs on tensors. NAME blocks and gives a new tensor, NAME_ works in place, NAME_async gives a
// Handle. grouped_NAME takes tensors that run together or not at all.
//
//   at::Tensor average = hvd::allreduce(x);                              // of all ranks, in a new tensor
//   hvd::allreduce_(x, {.name = "x", .op = hvd::Sum});
//   hvd::Handle handle = hvd::allreduce_async(x, {.name = "y"});
//   if (hvd::poll(handle)) use(hvd::synchronize(handle));
//   at::Tensor rows = hvd::allgather(x);                                 // ranks may have different rows
//   auto [received, splits] = hvd::alltoall(x, {1, 2, 0});               // x[0] to rank 0, x[1..2] to rank 1
//   const int last = hvd::join();                                        // this rank has no more data
//
// Names       match operations across ranks. Without one, the rank's nameless calls of the verb are numbered.
//             An operation with a name that is still under way on this rank is refused.
// Who         every rank of the process set, with the same dtype, shape, operator, root and factors. In
//             allgather and alltoall the first dimensions may differ.
// Operators   Average (default), Sum, Min, Max, Product, and Adasum for a power of two of ranks.
//             reducescatter has Average and Sum. The average of integers is rounded towards zero.
// Factors     prescale_factor multiplies the input, postscale_factor the result.
// Tensors     on the CPU. Contiguous ones are used where they lie, and must not change until synchronize().
// Autograd    results have no history; Python's have one.
// Throws      InvalidArgument before anything is sent. Mismatch on every rank if ranks disagree about a name:
//             it names tensor, values and ranks, and other names go on. PeerLost, Timeout and Aborted end
//             all.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/compat/horovod/basics.h"
#include "lockstep/named/operation.h"

namespace lockstep::compat::horovod {

using ReduceOp = named::Op;
inline constexpr ReduceOp Average = ReduceOp::AVERAGE;
inline constexpr ReduceOp Sum = ReduceOp::SUM;
inline constexpr ReduceOp Adasum = ReduceOp::ADASUM;
inline constexpr ReduceOp Min = ReduceOp::MIN;
inline constexpr ReduceOp Max = ReduceOp::MAX;
inline constexpr ReduceOp Product = ReduceOp::PRODUCT;

// fp16: floating point travels as float16, is summed in float32 and rounded once.
enum class Compression : std::uint8_t { none, fp16 };

struct ReduceOptions {
  std::string name = {};
  ReduceOp op = ReduceOp::AVERAGE;
  double prescale_factor = 1.0;
  double postscale_factor = 1.0;
  Compression compression = Compression::none;  // of the blocking forms
  ProcessSet process_set = {};
};
struct OperationOptions {
  std::string name = {};
  ProcessSet process_set = {};
};

// Operations that were started. It is used up by synchronize().
class Handle {
 public:
  using Finish =
      std::function<std::vector<at::Tensor>(const std::vector<std::shared_ptr<named::Operation>>&)>;
  Handle(std::vector<std::shared_ptr<named::Operation>> operations, Finish finish)
      : operations_(std::move(operations)), finish_(std::move(finish)) {}

  bool poll() const;
  // Waits for all of them. Throws the first failure; InvalidArgument the second time.
  std::vector<at::Tensor> synchronize();

 private:
  std::vector<std::shared_ptr<named::Operation>> operations_;
  Finish finish_;
};
inline bool poll(const Handle& handle) { return handle.poll(); }
inline at::Tensor synchronize(Handle& handle) { return handle.synchronize().front(); }

at::Tensor allreduce(const at::Tensor& tensor, const ReduceOptions& options = {});
void allreduce_(const at::Tensor& tensor, const ReduceOptions& options = {});
Handle allreduce_async(const at::Tensor& tensor, const ReduceOptions& options = {});
Handle allreduce_async_(const at::Tensor& tensor, const ReduceOptions& options = {});
std::vector<at::Tensor> grouped_allreduce(const std::vector<at::Tensor>& tensors,
                                          const ReduceOptions& options = {});
void grouped_allreduce_(const std::vector<at::Tensor>& tensors, const ReduceOptions& options = {});
Handle grouped_allreduce_async(const std::vector<at::Tensor>& tensors, const ReduceOptions& options = {});
Handle grouped_allreduce_async_(const std::vector<at::Tensor>& tensors, const ReduceOptions& options = {});

// All ranks' tensors, one behind the other along the first dimension.
at::Tensor allgather(const at::Tensor& tensor, const OperationOptions& options = {});
Handle allgather_async(const at::Tensor& tensor, const OperationOptions& options = {});
std::vector<at::Tensor> grouped_allgather(const std::vector<at::Tensor>& tensors,
                                          const OperationOptions& options = {});

// `root_rank` is a rank of the job.
at::Tensor broadcast(const at::Tensor& tensor, int root_rank, const OperationOptions& options = {});
void broadcast_(const at::Tensor& tensor, int root_rank, const OperationOptions& options = {});
Handle broadcast_async(const at::Tensor& tensor, int root_rank, const OperationOptions& options = {});
Handle broadcast_async_(const at::Tensor& tensor, int root_rank, const OperationOptions& options = {});

// splits[r] rows go to rank r. Returns the rows from all ranks, and how many came from each. Without splits,
// equal parts.
std::pair<at::Tensor, std::vector<std::int64_t>> alltoall(const at::Tensor& tensor,
                                                          const std::vector<std::int64_t>& splits,
                                                          const OperationOptions& options = {});
at::Tensor alltoall(const at::Tensor& tensor, const OperationOptions& options = {});
// The second tensor of its synchronize() has the received splits.
Handle alltoall_async(const at::Tensor& tensor, const std::vector<std::int64_t>& splits,
                      const OperationOptions& options = {});

// This rank's part of the first dimension; lower ranks get one row more where it does not divide.
at::Tensor reducescatter(const at::Tensor& tensor, const ReduceOptions& options = {});
Handle reducescatter_async(const at::Tensor& tensor, const ReduceOptions& options = {});
std::vector<at::Tensor> grouped_reducescatter(const std::vector<at::Tensor>& tensors,
                                              const ReduceOptions& options = {});

void barrier(const ProcessSet& process_set = {});
// Until all ranks have joined, this rank gives zeros to the others' allreduce of Average and Sum. Returns the
// last rank that joined, the same on every rank.
int join();

}  // namespace lockstep::compat::horovod
