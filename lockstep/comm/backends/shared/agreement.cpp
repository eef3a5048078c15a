#include "lockstep/comm/backends/shared/agreement.h"

#include "lockstep/comm/backends/shared/request_buffers.h"

namespace lockstep::shared {

bool Agreement::has_posted(const Request& request, int rank) {
  if (posted_.contains(rank)) return true;
  if (disagrees()) return false;
  const PostLine& theirs = context_->control().post_line(sequence_, rank);
  if (theirs.sequence.load(std::memory_order_seq_cst) != sequence_) return false;
  context_->sequencer().learn_finished(rank, theirs.finished);
  if (!agree(call_, theirs.call)) {
    const int own = context_->rank();
    disagree(mismatched(own, describe_disagreement(sequence_, own, call_, rank, theirs.call)));
    return false;
  }
  if (const auto bytes = bytes_to_be_posted(request, context_->rank(), rank);
      bytes && !check_size(rank, *bytes, theirs.call.count * size_of(call_.dtype)))
    return false;
  posted_.insert(rank);
  return true;
}

bool Agreement::all_posted(const Request& request) {
  if (posted_.full()) return true;
  for (int r = 0; r < context_->size(); ++r) has_posted(request, r);
  return posted_.full();
}

bool Agreement::check_size(int rank, std::size_t expected_bytes, std::size_t found_bytes) {
  if (expected_bytes == found_bytes) return true;
  const int own = context_->rank();
  const Call& theirs = context_->control().post_line(sequence_, rank).call;
  disagree(mismatched(
      own, describe_disagreement(sequence_, call_, theirs, {own, expected_bytes, rank, found_bytes}),
      MismatchKind::SIZES));
  return false;
}

void Agreement::disagree(const GroupFailure& failure) {
  state_ = State::DISAGREES;
  context_->record_failure(failure);
}

}  // namespace lockstep::shared
