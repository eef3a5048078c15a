// Mailbox holds a rank's notes about messages: the count sent to each rank, its receives in call order, and
// early messages.
//
// A message goes to the oldest receive that matches its source and tag, as in MPI. A later receive may
// therefore not take a letter that arrives between two looks. All letters between two ranks may hold messages
// without a matching receive. The next receive then puts these messages aside. Otherwise the sender could
// never publish the awaited message.
//
// Threads: the lock of the group's operations.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "lockstep/base/dtype.h"
#include "lockstep/comm/backend.h"

namespace lockstep::shared {

// Messages from one rank.
struct Inbox {
  struct Message {
    std::uint64_t number;
    int tag;
    DType dtype;
    std::uint64_t count;
    std::vector<std::byte> data;
  };

  std::deque<Message> aside;  // oldest first; all of them older than any letter
  std::uint64_t oldest = 0;   // number of the first message that may not have been taken
};

// Receives that no message has matched yet.
class ReceiveQueue {
 public:
  // Adds a receive and returns its ticket. `source` may be ANY_SOURCE.
  std::uint64_t called(int source, int tag) {
    waiting_.push_back({next_, source, tag});
    return next_++;
  }
  // Whether a message from `source` with `tag` may go to this receive: no older one wants it.
  bool is_first(std::uint64_t ticket, int source, int tag) const {
    return std::none_of(waiting_.begin(), waiting_.end(), [&](const Receive& other) {
      return other.ticket < ticket && other.tag == tag &&
             (other.source == source || other.source == ANY_SOURCE);
    });
  }
  void served(std::uint64_t ticket) {
    std::erase_if(waiting_, [&](const Receive& other) { return other.ticket == ticket; });
  }

 private:
  struct Receive {
    std::uint64_t ticket;
    int source;
    int tag;
  };
  std::vector<Receive> waiting_;  // in the order of their calls
  std::uint64_t next_ = 0;
};

class Mailbox {
 public:
  explicit Mailbox(int size)
      : sent_(static_cast<std::size_t>(size)), inboxes_(static_cast<std::size_t>(size)) {}

  // Number of the next message to `destination`, from 0.
  std::uint64_t next_number(int destination) { return sent_.at(static_cast<std::size_t>(destination))++; }
  Inbox& inbox(int source) { return inboxes_.at(static_cast<std::size_t>(source)); }
  ReceiveQueue& receives() { return receives_; }

 private:
  std::vector<std::uint64_t> sent_;  // number of messages, by destination
  std::vector<Inbox> inboxes_;       // by source
  ReceiveQueue receives_;
};

}  // namespace lockstep::shared
