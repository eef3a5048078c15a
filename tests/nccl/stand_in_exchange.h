// Sends and receives of one rank that go on side by side, through the channels of their communicators.
//
//   Exchange exchange;
//   exchange.send(comm, 1, input, bytes, tag);
//   exchange.receive(comm, 1, output, bytes, tag);
//   exchange.run();  // until all have ended; those of a communicator that is aborted end without a result
//
// What goes the same way between the same two ranks goes in the order of these calls.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <tuple>

#include "tests/nccl/stand_in_comm.h"
#include "tests/nccl/stand_in_orders.h"

namespace lockstep::nccl::stand_in {

// Stands before each message.
struct Tag {
  Verb verb;
  DataType type;
  RedOp op;
  int root;
  unsigned step;
  std::uint64_t count;  // of the call

  bool operator==(const Tag&) const = default;
};

class Exchange {
 public:
  void send(Communicator& comm, int peer, const char* data, std::size_t bytes, const Tag& tag);
  void receive(Communicator& comm, int peer, char* data, std::size_t bytes, const Tag& tag);
  void run();

 private:
  struct Transfer {
    const char* from;  // of a send
    char* to;          // of a receive
    std::size_t bytes;
    Tag tag;
    Tag arriving{};
    std::size_t tag_done = 0;
    std::size_t done = 0;
    bool is_stuck = false;  // what arrives is of another call
  };
  enum class Way { TO, FROM };
  using Lane = std::tuple<Communicator*, int, Way>;

  static bool advance_send(Channel& channel, Transfer& transfer);
  static bool advance_receive(Communicator& comm, int peer, Transfer& transfer);
  bool has_ended(Channel& channel, Way way, const Transfer& transfer) const;
  bool advance(const Lane& lane, std::deque<Transfer>& transfers) const;

  const bool is_network_ = OrderBook::of_process().orders().is_network;
  std::map<Lane, std::deque<Transfer>> lanes_;
};

}  // namespace lockstep::nccl::stand_in
