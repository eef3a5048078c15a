// SendOperation, ReceiveOperation: one call of send() and one of recv().
#pragma once

#include <memory>
#include <string>

#include "lockstep/comm/backends/messages/operation.h"

namespace lockstep::messages {

class SendOperation final : public Operation {
 public:
  // `number` counts the messages to that receiver.
  SendOperation(std::shared_ptr<Core> core, Request request, std::uint64_t number);
  std::string describe() const override;
  bool needs(int rank) const override { return rank == request().root; }

 private:
  void step() override;

  const std::uint64_t number_;
  bool posted_ = false;
};

class ReceiveOperation final : public Operation {
 public:
  using Operation::Operation;
  std::string describe() const override;
  bool needs(int rank) const override;
  int source_rank() const override;

 private:
  void step() override;

  bool posted_ = false;
  int source_ = -1;
};

}  // namespace lockstep::messages
