// LentValues: a value that a part of a pipeline's model passes to another rank of its machine, in memory that
// both ranks map. The receiver uses it where it lies, so it is copied once. Used by part_messages.h.
//
//   const LentValues lent(group);                                         // on both ranks
//   if (lent.carries(value.nbytes())) isend(lent.lend(value), receiver);  // the message is a place
//
//   if (lent.carries(bytes_of(spec))) recv(place, sender);                // the receiver decides alike
//   at::Tensor value = lent.hold(place, spec, sender);
//
// Lifetime    The sender lets go of the memory at once, and the receiver holds it until the storage of the
//             value is gone. So no rank writes there while autograd, a stage or the program refer to it,
//             also after the pipeline and the group have gone. The receiver may write to it in place.
// Memory      A receiver's values lie in the segments of its neighbours. In a step they take the bytes of
//             one micro-batch's input times the receiver's micro-batches in flight, and the gradients on
//             their way. Later values take the same memory again; a segment keeps its pages.
// Waits       Neither function waits.
// Elsewhere   Values travel as messages where the ranks of the group have no memory in common: over
//             connections, and on several machines. Small values do everywhere, because a place costs as
//             much.
// Fork        A forked child has none of these values, because it inherits no memory of groups.
// Throws      lend(): SystemError if the segment has no room, as a send does. Both: the group's failure.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/pipeline/value_specs.h"

namespace lockstep {

class LentValues {
 public:
  static constexpr std::size_t SMALLEST = std::size_t{64} << 10U;

  explicit LentValues(const ProcessGroup& group);

  // Whether a value of these bytes is lent. All ranks of the group answer alike.
  bool carries(std::size_t bytes) const { return ranks_share_memory_ && bytes >= SMALLEST; }
  // Returns the place of a contiguous copy: one number, for one receiver, which must hold it.
  at::Tensor lend(const at::Tensor& value) const;
  at::Tensor hold(const at::Tensor& place, const ValueSpec& spec, int lender) const;

 private:
  const ProcessGroup group_;
  const bool ranks_share_memory_;
};

}  // namespace lockstep
