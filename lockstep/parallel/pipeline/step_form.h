// What all ranks of a pipeline learn about a batch before they run it, and how a batch is cut.
//
//   const StepHead head = head_of(inputs, /*is_training=*/true, /*micro_batches=*/4);   // on the first stage
//   StepHead known = head;                                 // on other ranks: anything
//   exchange_head(group, /*first_rank=*/0, known);
//   cut_rows(inputs, rows_of(known, 4));                   // by micro-batch
//
// Throws      InvalidArgument: a batch without a defined tensor or rows, a tensor without dimensions, tensors
//             with different numbers of rows.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "lockstep/comm/process_group.h"

namespace lockstep {

struct StepHead {
  bool is_training = true;
  std::int64_t rows = 0;  // of the batch; 0: the first stage refused it
  std::uint64_t signature = 0;
};

StepHead head_of(at::TensorList inputs, bool is_training, int micro_batches);

// Of each micro-batch; none without rows.
std::vector<std::int64_t> rows_of(const StepHead& head, int micro_batches);

// Pieces of each tensor along dimension 0, by micro-batch. An undefined tensor stays undefined in each.
std::vector<std::vector<at::Tensor>> cut_rows(at::TensorList tensors, const std::vector<std::int64_t>& rows);

// Messages from `first_rank` to all others; no rank waits but for its own.
void exchange_head(const ProcessGroup& group, int first_rank, StepHead& head);

}  // namespace lockstep
