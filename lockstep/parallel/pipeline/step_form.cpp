#include "lockstep/parallel/pipeline/step_form.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <numeric>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/purpose.h"
#include "lockstep/parallel/pipeline/part_messages.h"
#include "lockstep/parallel/pipeline/value_specs.h"
#include "lockstep/schedules/micro_batches.h"
#include "lockstep/tensor/point_to_point.h"

namespace lockstep {
namespace {

constexpr int HEAD_TAG = PartMessages::TAG + 2;

void check_rows(at::TensorList tensors, std::int64_t rows) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined()) continue;
    if (tensors[i].dim() == 0)
      throw InvalidArgument(str("Pipeline: tensor ", i, " of the batch has no dimension to cut along"));
    if (tensors[i].size(0) != rows)
      throw InvalidArgument(str("Pipeline: tensor ", i, " of inputs or targets has ", tensors[i].size(0),
                                " rows, and the batch has ", rows,
                                " (the first dimension of its first input)"));
  }
}

}  // namespace

StepHead head_of(at::TensorList inputs, bool is_training, int micro_batches) {
  for (const at::Tensor& tensor : inputs) {
    if (!tensor.defined() || tensor.dim() == 0) continue;
    static_cast<void>(micro_batch_sizes(tensor.size(0), micro_batches));  // refuses a batch without rows
    return {.is_training = is_training, .rows = tensor.size(0), .signature = signature_of(inputs.vec())};
  }
  throw InvalidArgument(
      "Pipeline: the batch has no input with rows; the rank of the first stage passes the inputs");
}

std::vector<std::int64_t> rows_of(const StepHead& head, int micro_batches) {
  return head.rows == 0 ? std::vector<std::int64_t>() : micro_batch_sizes(head.rows, micro_batches);
}

std::vector<std::vector<at::Tensor>> cut_rows(at::TensorList tensors, const std::vector<std::int64_t>& rows) {
  check_rows(tensors, std::accumulate(rows.begin(), rows.end(), std::int64_t{0}));
  std::vector<std::vector<at::Tensor>> pieces(rows.size());
  std::int64_t first = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (const at::Tensor& tensor : tensors)
      pieces[i].push_back(tensor.defined() ? tensor.narrow(0, first, rows[i]) : tensor);
    first += rows[i];
  }
  return pieces;
}

void exchange_head(const ProcessGroup& group, int first_rank, StepHead& head) {
  const Acting acting(Purpose::PIPELINE);
  if (group.rank() != first_rank) {
    const at::Tensor words = at::empty({3}, at::kLong);
    irecv(words, GroupRank{first_rank}, group, HEAD_TAG).wait();
    const auto* const data = words.const_data_ptr<std::int64_t>();
    head = {.is_training = data[0] != 0, .rows = data[1], .signature = static_cast<std::uint64_t>(data[2])};
    return;
  }
  const at::Tensor words = at::tensor(
      {head.is_training ? std::int64_t{1} : 0, head.rows, static_cast<std::int64_t>(head.signature)},
      at::kLong);
  std::vector<Work> sending;
  for (int rank = 0; rank < group.size(); ++rank)
    if (rank != first_rank) sending.push_back(isend(words, GroupRank{rank}, group, HEAD_TAG));
  for (Work& work : sending) work.wait();
}

}  // namespace lockstep
