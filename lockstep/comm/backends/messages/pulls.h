// Pulls: messages that a connection (connection.h) reads out of the other process's memory, in order, piece
// by piece. Two processes of one machine thus copy a large message once. A socket would copy it into the
// kernel and out again.
//
//   add() --read_piece(), again and again--> all is here --take_given()--> received
//                     |--unreadable: the caller asks for it instead
//
// A message counts as received when the sender confirms (GIVEN) that the data stayed valid until it was read.
// The reason: a caller whose call has failed may reuse its buffer.
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
  // What read_piece() has done. PIECE: it read one. TOLD: it read one, and the sender must be told that
  // `bytes` have been read in all. UNREADABLE: the sender has withdrawn the message, or the kernel no longer
  // permits the read.
  enum class Outcome { PIECE, TOLD, UNREADABLE };
  struct Piece {
    Outcome outcome = Outcome::PIECE;
    std::uint32_t transfer = 0;
    std::uint64_t bytes = 0;
    std::shared_ptr<Receive> receive;  // of an UNREADABLE message
  };

  // `memory` is the other process's memory, if this process can read it.
  explicit Pulls(const std::optional<PeerMemory>& memory) : memory_(memory) {}

  bool can_read() const { return memory_.has_value(); }
  bool empty() const { return waiting_.empty(); }
  // `payload` of the OFFER says where the message lies. Returns false if it does not.
  bool add(std::uint32_t transfer, std::span<const std::byte> payload,
           const std::shared_ptr<Receive>& receive);
  // Reads a piece of the first message. There must be one.
  Piece read_piece();
  // Returns the receive whose whole message the sender confirms with GIVEN. Null if the receive was
  // forgotten.
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
  std::map<std::uint32_t, std::shared_ptr<Receive>> complete_;  // read completely, and not yet confirmed
};

}  // namespace lockstep::messages
