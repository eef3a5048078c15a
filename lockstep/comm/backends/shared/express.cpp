#include "lockstep/comm/backends/shared/express.h"

#include <cstring>

#include "lockstep/base/fail_point.h"
#include "lockstep/comm/backends/segment/rank_addresses.h"
#include "lockstep/comm/kernels/reduce_kernels.h"

namespace lockstep::shared {
namespace {

// Looks up to `spins` times for the other ranks' lines. Returns true once all ranks have posted this call;
// `payloads` then holds the addresses of the data in their lines.
bool find_lines(Context& context, std::uint64_t sequence, const Call& call, int spins,
                RankAddresses<const std::byte>& payloads) {
  for (int r = 0; r < context.size(); ++r) {
    const PostLine& theirs = context.control().post_line(sequence, r);
    while (theirs.sequence.load(std::memory_order_acquire) != sequence) {
      if (--spins < 0) return false;
    }
    if (!agree(call, theirs.call)) return false;
    context.sequencer().learn_finished(r, theirs.finished);
    payloads.add(theirs.payload);
  }
  return true;
}

}  // namespace

ExpressResult express(Context& context, const Request& request, const Call& call, int spins,
                      FlightRecorder::Ticket& record) {
  const std::size_t bytes = call.count * size_of(call.dtype);
  const bool fits = call.verb == Verb::BARRIER ||
                    (call.verb == Verb::ALL_REDUCE && context.paths().path_of(bytes) == Path::INLINE);
  Sequencer& sequencer = context.sequencer();
  const std::uint64_t sequence = sequencer.last() + 1;
  if (!fits || request.async_op || !sequencer.is_slot_free(sequence)) return ExpressResult::UNFIT;
  const Control& control = context.control();
  if (bytes > 0) std::memcpy(control.post_line(sequence, context.rank()).payload, request.input, bytes);
  PostLine& mine = sequencer.fill_next(call, bytes > 0 ? Placement::IN_LINE : Placement::NOWHERE, 0, 0);
  // Publishes the line. A fence here would hold up this rank until its store has reached the other cores. So
  // the rank looks for the other lines first. ring() then makes the fence and wakes sleeping ranks.
  mine.sequence.store(sequence, std::memory_order_release);
  record = context.recorder().start(call, sequence);
  fail_point("comm.posted");
  RankAddresses<const std::byte> inputs(context.size());
  const bool together = find_lines(context, sequence, call, spins, inputs);
  control.ring();
  if (!together) return ExpressResult::POSTED;
  auto* output = static_cast<std::byte*>(request.output);
  if (bytes > 0) reduce(call.dtype, call.op, inputs.all(), {&output, 1}, call.count);
  fail_point("comm.before_finish");
  sequencer.finish(sequence);
  context.recorder().finish(record, FlightRecorder::DONE);
  return ExpressResult::DONE;
}

}  // namespace lockstep::shared
