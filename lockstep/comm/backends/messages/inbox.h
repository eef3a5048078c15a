// Inbox: matches the messages of a group with the receives that wait for them, whichever comes first.
//
// A message of a collective is identified by source, sequence number and label. A message of send() is
// matched by source and tag, in the order of sends on one side and of receives on the other.
//
// Threads: the fabric's lock.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "lockstep/comm/backends/messages/transfer.h"

namespace lockstep::messages {

class Inbox {
 public:
  struct Arrived {
    int source = 0;
    Header header;  // of a MESSAGE, with its payload below, or of an OFFER
    std::vector<std::byte> payload;
  };

  void post(const std::shared_ptr<Receive>& receive, bool collective);
  void keep(Arrived message);
  // Returns the receive that waits for this message, and removes it.
  std::shared_ptr<Receive> take_receive(int source, const Header& header);
  // Returns the message that this receive wants, if it has arrived.
  std::optional<Arrived> take_message(const Receive& receive, bool collective);
  void forget(const Receive& receive);
  // Removes and returns all messages here. No receive will ask for them any more.
  std::vector<Arrived> take_all();

 private:
  using Key = std::tuple<int, std::uint64_t, std::uint32_t>;
  static Key key_of(int source, const Header& header) { return {source, header.sequence, header.label}; }

  std::map<Key, std::shared_ptr<Receive>> posted_;
  std::map<Key, Arrived> arrived_;
  std::list<std::shared_ptr<Receive>> posted_messages_;
  std::list<Arrived> arrived_messages_;
};

}  // namespace lockstep::messages
