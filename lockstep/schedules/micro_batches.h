// micro_batch_sizes: how a batch is cut into the micro-batches of a pipeline. Pure.
//
//   micro_batch_sizes(8, 4);     // {2, 2, 2, 2}
//   micro_batch_sizes(9, 4);     // {3, 2, 2, 2}: an indivisible batch
//   micro_batch_sizes(3, 4);     // {1, 1, 1}: fewer micro-batches than asked for
//
// Sizes differ by at most 1, as with torch.tensor_split, and the larger ones come first. torch.chunk, which
// torchgpipe uses, gives 3, 3, 3 for the second line: one micro-batch fewer, and so a larger bubble.
// A loss that is a mean over its rows is weighted with size / batch, so that their sum is the batch's mean.
//
// Throws      InvalidArgument: a number below 1.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

std::vector<std::int64_t> micro_batch_sizes(std::int64_t batch, std::int64_t micro_batches);

}  // namespace lockstep
