// SendOperation, ReceiveOperation: messages between two ranks of the shared-memory engine.
//
// The sender copies its data into a block of its own segment and publishes a letter, which says where the
// block is (segment/layout.h). The receiver copies each piece out of the block as it arrives, and then marks
// the letter as taken. The sender may now reuse both. A send is done when all its data are in the block.
//
// A large message is first offered in another way, if its sender waits. The sender lends its own memory, or
// passes the data through a ring. If no receiver comes in the time of one copy, it takes a block after all.
//
// Sends to one rank are published in the order of the calls. A receive takes the first message with its tag
// that no earlier receive wants (shared/mailbox.h).
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

  const std::uint64_t number_;  // counts the messages to this destination
  bool lent_ = false;
  std::size_t poured_ = 0;                 // pieces that were put into the ring
  Deadline patience_ = Deadline::never();  // how long the message stays lent
};

class ReceiveOperation : public Operation {
 public:
  ReceiveOperation(Context& context, PendingOperations& pending, Request&& request);

  int source_rank() const override { return source_; }
  std::uint64_t progress() const override { return copied_; }
  // For a receive from any source: the ranks that can still send.
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
  // Returns whether the message has the size and type of this receive. Records the mismatch otherwise.
  bool fits(int source, std::uint64_t number, DType dtype, std::uint64_t count);

  const std::uint64_t place_;  // ticket of this receive in the queue
  int source_ = -1;            // known once it has begun to copy
  std::size_t copied_ = 0;     // bytes copied of the current letter
};

}  // namespace lockstep::shared
