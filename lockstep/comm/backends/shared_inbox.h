// What a rank keeps about messages from one other rank: whose turn it is to receive, and messages that came too early.
//
// Receives with one tag are served in the order they were called, so a later one may not take a letter that arrives between
// two looks. And when all letters between two ranks hold messages that nobody here has asked for yet, the next receive puts
// them aside, or the sender could never publish the one that is asked for.
//
// Threads: the engine's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "lockstep/base/dtype.h"

namespace lockstep::shared {

class Inbox {
 public:
  struct Message {
    std::uint64_t number;
    int tag;
    DType dtype;
    std::uint64_t count;
    std::vector<std::byte> data;
  };

  // A receive with `tag` was called; the answer is its turn.
  std::uint64_t called(int tag) { return turns_[tag].called++; }
  bool is_turn(int tag, std::uint64_t turn) const {
    const auto found = turns_.find(tag);
    return found != turns_.end() && found->second.served == turn;
  }
  void served(int tag) {
    const auto found = turns_.find(tag);
    if (++found->second.served == found->second.called) turns_.erase(found);
  }

  std::deque<Message> aside;  // oldest first; all of them older than any letter
  std::uint64_t oldest = 0;   // number of the first message that may not have been taken

 private:
  struct Turns {
    std::uint64_t called = 0;
    std::uint64_t served = 0;
  };
  std::map<int, Turns> turns_;  // of tags with receives pending
};

}  // namespace lockstep::shared
