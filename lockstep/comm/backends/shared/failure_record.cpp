#include "lockstep/comm/backends/shared/failure_record.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "lockstep/base/deadline.h"

namespace lockstep::shared {

void FailureRecord::record(const GroupFailure& failure) const {
  Header& header = control_.header();
  auto expected = static_cast<std::uint32_t>(FailureState::NONE);
  // The compare-and-swap decides which rank writes the text; the state WRITTEN publishes the text. It also
  // publishes the data that are complete by now. is_set() acquires both.
  if (header.failure_state.compare_exchange_strong(expected,
                                                   static_cast<std::uint32_t>(FailureState::WRITING),
                                                   std::memory_order_release, std::memory_order_relaxed)) {
    header.failure_code = static_cast<std::uint32_t>(failure.code);
    header.failure_kind = static_cast<std::uint32_t>(failure.kind);
    header.failure_peer = failure.peer;
    header.failure_reporter = failure.reporter;
    const std::size_t length = std::min(failure.text.size(), sizeof(header.failure_text) - 1);
    std::memcpy(header.failure_text, failure.text.data(), length);
    header.failure_text[length] = '\0';
    header.failure_state.store(static_cast<std::uint32_t>(FailureState::WRITTEN), std::memory_order_release);
  }
  control_.ring();
}

// The reporter needs nanoseconds from WRITING to WRITTEN. A reporter that died in between never reaches
// WRITTEN.
GroupFailure FailureRecord::read(int reader) const {
  const Header& header = control_.header();
  const Deadline deadline = Deadline::in(std::chrono::milliseconds(100));
  while (header.failure_state.load(std::memory_order_acquire) !=
         static_cast<std::uint32_t>(FailureState::WRITTEN)) {
    if (deadline.expired())
      return {ErrorCode::PEER_LOST, "a rank died while it reported a failure", -1, reader};
  }
  return {static_cast<ErrorCode>(header.failure_code),
          std::string(header.failure_text, strnlen(header.failure_text, sizeof(header.failure_text))),
          header.failure_peer, header.failure_reporter, static_cast<MismatchKind>(header.failure_kind & 1U)};
}

}  // namespace lockstep::shared
