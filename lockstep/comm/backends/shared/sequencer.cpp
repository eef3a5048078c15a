#include "lockstep/comm/backends/shared/sequencer.h"

namespace lockstep::shared {

void Sequencer::post(const Call& call, Placement placement, std::size_t offset, std::size_t bytes) {
  PostLine& mine = fill_next(call, placement, offset, bytes);
  // Publishes line and block to has_posted(). The store is sequentially consistent with this rank's next look
  // at the other lines. Of two ranks that post different calls at the same time, at least one sees the
  // other's.
  mine.sequence.store(last_, std::memory_order_seq_cst);
  control_.ring_after_seq_cst();
}

}  // namespace lockstep::shared
