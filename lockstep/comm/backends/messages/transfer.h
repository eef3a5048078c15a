// Send, Receive: one message under way, between the operation that wants it and the connection that carries
// it.
//
// Both the connection and the operation hold a reference. An operation that gives up (its group failed or was
// left) cancels its transfers: `owner` becomes null, and the memory is not touched from then on. The caller
// may free it at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/comm/backend.h"
#include "lockstep/comm/backends/messages/wire.h"

namespace lockstep::messages {

struct Send;
struct Receive;

// All functions are called with the fabric's lock held.
class TransferOwner {
 public:
  virtual void moved() = 0;              // some bytes have moved
  virtual void sent(Send& send) = 0;     // the kernel has taken all bytes
  virtual void dropped(Send& send) = 0;  // the peer is gone
  virtual void received(Receive& receive) = 0;

 protected:
  TransferOwner() = default;
  TransferOwner(const TransferOwner&) = default;
  TransferOwner& operator=(const TransferOwner&) = default;
  ~TransferOwner() = default;
};

struct Send {
  TransferOwner* owner = nullptr;
  int peer = 0;  // rank of the owner's group
  Header header;
  std::span<const std::byte> data;
  bool ahead = false;     // belongs to the next step of its owner
  std::size_t taken = 0;  // number of bytes that are in frames already
  bool over = false;
};

struct Receive {
  TransferOwner* owner = nullptr;
  int peer = 0;  // rank of the owner's group, or ANY_SOURCE
  std::uint64_t sequence = 0;
  std::uint32_t label = 0;
  std::span<std::byte> data;
  std::size_t whole = 0;
  bool ahead = false;  // belongs to the next step of its owner
  std::size_t arrived = 0;
  bool over = false;
  const Request* request = nullptr;  // the operation's request, which lives as long as the owner
};

}  // namespace lockstep::messages
