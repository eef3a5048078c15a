#include "lockstep/schedules/micro_batches.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {

std::vector<std::int64_t> micro_batch_sizes(std::int64_t batch, std::int64_t micro_batches) {
  if (batch < 1 || micro_batches < 1) {
    throw InvalidArgument(str("micro_batch_sizes: a batch of ", batch, " rows in ", micro_batches,
                              " micro-batches; both are at least 1"));
  }
  const std::int64_t count = std::min(batch, micro_batches);
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(count), batch / count);
  std::fill_n(sizes.begin(), batch % count, batch / count + 1);
  return sizes;
}

}  // namespace lockstep
