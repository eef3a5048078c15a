// Pulls: messages that a connection (connection.h) reads out of the other process's memory, in order, piece
// by piece. Two processes of one machine copy a large message once so, instead of into the kernel and out of
// it.
//
//   add() --read_piece(), again and again--> all is here --take_given()--> received
//                     |--unreadable: the caller asks for it instead
//
// A message counts as received when the sender has said that it had not withdrawn it by then (GIVEN), because
// a caller whose call has failed may use its buffer again.
//
// Threads: the fabric's lock.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>

#include "lockstep/comm/backends/messages/transfer.h"
#include "lockstep/os/peer_memory.h"

namespace lockstep::messages {

class Pulls {
 public:
  // What read_piece() has done: a PIECE; one of which the sender is TOLD, `bytes` in all; or the message is
  // UNREADABLE because the sender has withdrawn it, or the kernel allows it no more.
  enum class Outcome { PIECE, TOLD, UNREADABLE };
  struct Piece {
    Outcome outcome = Outcome::PIECE;
    std::uint32_t transfer = 0;
    std::uint64_t bytes = 0;
    std::shared_ptr<Receive> receive;  // of an UNREADABLE one
  };

  // `memory`: of the other process, if this one can read it.
  explicit Pulls(const std::optional<PeerMemory>& memory) : memory_(memory) {}

  bool can_read() const { return memory_.has_value(); }
  bool empty() const { return waiting_.empty(); }
  // `payload` of the OFFER says where the message lies; false if it does not.
  bool add(std::uint32_t transfer, std::span<const std::byte> payload,
           const std::shared_ptr<Receive>& receive);
  // Of the first message. There must be one.
  Piece read_piece();
  // The receive of which all is here, at the sender's GIVEN. Null if it was forgotten.
  std::shared_ptr<Receive> take_given(std::uint32_t transfer);
  void forget(const Receive& receive);
  void clear();

 private:
  struct Waiting {
    std::uint32_t transfer = 0;
    std::uint64_t address = 0;
    std::shared_ptr<Receive> receive;
  };

  const std::optional<PeerMemory> memory_;
  std::deque<Waiting> waiting_;
  std::map<std::uint32_t, std::shared_ptr<Receive>> complete_;  // was all of it there?
};

}  // namespace lockstep::messages
