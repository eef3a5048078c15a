// Link, Links: the interface below a connection. A link carries bytes between this process and one other,
// over sockets (socket_links.h), MPI (mpi/links.h) or Gloo (gloo/links.h).
//
//   const std::unique_ptr<Link> link = links.link_to(3);
//   const StreamResult sent = link->send_some({header, payload});          // 0 bytes: not now
//   for (const Links::Event& event : links.wait(Deadline::never())) ...    // event.peer can be read from or
//                                                                          // written to
//
// A link is a stream: the reader gets all bytes in the order sent, in pieces of any size. Only wait() blocks.
//
// Threads: one thread at a time uses a link (under the fabric's lock). One thread calls wait() while others
// use the links.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/os/peer_memory.h"
#include "lockstep/os/stream.h"

namespace lockstep::messages {

class Link {
 public:
  Link() = default;
  virtual ~Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  virtual StreamResult receive_some(std::span<std::byte> buffer) = 0;
  // Sends the two parts one behind the other, as far as there is room.
  virtual StreamResult send_some(const std::array<std::span<const std::byte>, 2>& parts) = 0;
  // Says whether wait() has to report when there is room again.
  virtual void want_write(bool wanted) = 0;
  // Everything sent arrives even if this process ends next.
  virtual bool flushed() const = 0;
  // How long the other machine has left sent data unanswered; 0 where that is not known.
  virtual std::chrono::milliseconds silent_for() const { return std::chrono::milliseconds(0); }
  virtual void close() = 0;
};

class Links {
 public:
  struct Event {
    int peer = 0;
    bool readable = false;  // or closed, or broken: the next read tells which
    bool writable = false;
  };

  Links() = default;
  virtual ~Links() = default;
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  virtual std::unique_ptr<Link> link_to(int peer) = 0;  // null if there is no link, as to this rank itself
  // Waits and returns the links that are ready. Returns nothing at the deadline or after wake(). `eager`: the
  // caller has nothing else to do, so the wait may spin for a moment if no other thread needs the core.
  virtual std::vector<Event> wait(Deadline deadline, bool eager = false) = 0;
  virtual void wake() = 0;
  // A group that uses the links has failed. From now on no destructor of a link waits for another rank.
  virtual void failed() {}
};

// How messages name the process of another rank.
struct PeerProcess {
  std::string address;
  long pid = 0;
};

// The result of connecting the ranks of a meeting, on each of them (messages/carrier.h).
struct Connections {
  std::unique_ptr<Links> links;
  std::vector<PeerProcess> peers;  // by rank, including this one
  // A machine that has been silent for this long counts as gone. 0: the links find lost machines themselves,
  // if they can.
  std::chrono::milliseconds silence{0};
  // By rank: the memory of each rank that this one can read. Empty if it can read none.
  std::vector<std::optional<PeerMemory>> memories;
};

}  // namespace lockstep::messages
