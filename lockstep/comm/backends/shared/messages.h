// SendOperation, ReceiveOperation: messages between two ranks of the shared-memory engine.
//
// A sender publishes a letter (segment/layout.h) and copies its data into a block of its own segment. The
// receiver reads the pieces as they arrive. The send is done when all data are copied. For a large message
// whose sender waits, the sender first offers its own memory or a ring, for a limited time. The receiver
// takes the first untaken letter with its tag, copies the data and marks the letter as taken. The sender may
// then reuse the letter and the block. Sends to one rank are published in call order. Receives with one tag
// from one rank are served in call order (shared/mailbox.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/comm/backends/shared/operation.h"

namespace lockstep::shared {

class SendOperation : public Operation {
 public:
  SendOperation(Context& context, PendingOperations& pending, Request&& request);

  std::uint64_t progress() const override { return published() ? 1 + poured_ : 0; }
  std::vector<int> awaited() const override { return {request_.root}; }
  std::string describe() const override;

 protected:
  bool try_advance(std::size_t slices) override;

 private:
  bool published() const;
  bool publish(Letter& letter);
  bool may_lend() const;
  void lend(Letter& letter);
  bool pour(Letter& letter);
  bool withdraw(Letter& letter) const;
  void copy_in(Letter& letter);
  std::size_t bytes() const { return request_.count * size_of(request_.dtype); }

  const std::uint64_t number_;  // of the message, among those to this destination
  bool lent_ = false;
  std::size_t poured_ = 0;                 // pieces, into the ring
  Deadline patience_ = Deadline::never();  // while it is lent
};

class ReceiveOperation : public Operation {
 public:
  ReceiveOperation(Context& context, PendingOperations& pending, Request&& request);

  int source_rank() const override { return source_; }
  std::uint64_t progress() const override { return copied_; }
  // From any source: the ranks that could still send.
  std::vector<int> awaited() const override;
  std::string describe() const override;

 protected:
  bool try_advance(std::size_t slices) override;

 private:
  bool take_from(int source);
  bool take_from_aside(int source);
  bool take_from_letters(int source);
  bool take(int source, std::uint64_t number, Letter& letter);
  bool take_letter(int source, std::uint64_t number, Letter& letter);
  bool take_lent(int source, std::uint64_t number, Letter& letter);
  bool empty_ring(int source, std::uint64_t number, Letter& letter);
  // True when the message has the size and type of this receive; records the mismatch otherwise.
  bool fits(int source, std::uint64_t number, DType dtype, std::uint64_t count);

  const std::uint64_t place_;  // among the receives
  int source_ = -1;            // once it has begun to copy
  std::size_t copied_ = 0;     // bytes, of the letter it takes
};

}  // namespace lockstep::shared
