// Inbox: brings the messages of a group that arrive together with the receives that wait for them, whichever
// is first.
//
// A message of a collective is known by source, sequence number and label. Messages of send() are matched by
// source and tag, in the order sent on one side and in the order of the calls on the other.
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
    Header header;  // MESSAGE, with its payload here, or OFFER
    std::vector<std::byte> payload;
  };

  void post(const std::shared_ptr<Receive>& receive, bool collective);
  void keep(Arrived message);
  // The receive that waits for this message; it does not wait any longer.
  std::shared_ptr<Receive> take_receive(int source, const Header& header);
  // The message that this receive wants, if it is here.
  std::optional<Arrived> take_message(const Receive& receive, bool collective);
  void forget(const Receive& receive);
  // All that is here, which nobody will ask for.
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
