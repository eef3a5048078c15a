// SendOperation, ReceiveOperation: messages between two ranks of the shared-memory engine.
//
// A sender copies its data into a block of its own segment and publishes a letter (shared_layout.h); it is then done. The
// receiver takes the first untaken letter with its tag, copies, and marks it taken, which lets the sender reuse the letter
// and the block. Sends to one rank are published, and receives with one tag from one rank served, in the order of calls
// (shared_inbox.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/comm/backends/shared_engine.h"

namespace lockstep::shared {

class SendOperation : public Operation {
 public:
  SendOperation(std::shared_ptr<SharedEngine> engine, Request request);

  std::uint64_t progress() const override { return published() ? 1 : 0; }
  std::vector<int> awaited() const override { return {request_.root}; }
  std::string describe() const override;

 protected:
  bool try_advance(std::size_t slices) override;

 private:
  bool published() const;

  const std::uint64_t number_;  // of the message, among those to this destination
};

class ReceiveOperation : public Operation {
 public:
  ReceiveOperation(std::shared_ptr<SharedEngine> engine, Request request);

  int source_rank() const override { return source_; }
  std::uint64_t progress() const override { return 0; }
  // From any source: whoever could still send.
  std::vector<int> awaited() const override;
  std::string describe() const override;

 protected:
  bool try_advance(std::size_t slices) override;

 private:
  bool take_from(int source);
  bool take_from_aside(int source);
  bool take_from_letters(int source);
  // True when the message is what was asked for, else the mismatch is recorded.
  bool fits(int source, std::uint64_t number, DType dtype, std::uint64_t count);

  const std::uint64_t ticket_;
  int source_ = -1;
};

}  // namespace lockstep::shared
