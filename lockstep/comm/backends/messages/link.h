// Link, Links: what carries the bytes between this process and the others: sockets (socket_links.h), MPI
// (mpi/links.h) or Gloo (gloo/links.h).
//
//   const std::unique_ptr<Link> link = links.link_to(3);
//   const StreamResult sent = link->send_some({header, payload});          // 0 bytes: not now
//   for (const Links::Event& event : links.wait(Deadline::never())) ...    // event.peer can be read from or
//                                                                          // written to
//
// A link is a stream: what one side sends in any pieces the other reads in any pieces, in order. Nothing here
// blocks but wait().
//
// Threads: a link by one thread at a time (the fabric's lock); wait() by one thread, while others use the
// links.
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
  // The two parts as one, as far as there is room.
  virtual StreamResult send_some(const std::array<std::span<const std::byte>, 2>& parts) = 0;
  // Whether wait() is to say when there is room again.
  virtual void want_write(bool wanted) = 0;
  // Everything sent arrives even if this process ends next.
  virtual bool flushed() const = 0;
  // How long the other machine has not answered to what was sent to it; 0 where that is not known.
  virtual std::chrono::milliseconds silent_for() const { return std::chrono::milliseconds(0); }
  virtual void close() = 0;
};

class Links {
 public:
  struct Event {
    int peer = 0;
    bool readable = false;  // or closed, or broken: reading tells which
    bool writable = false;
  };

  Links() = default;
  virtual ~Links() = default;
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  virtual std::unique_ptr<Link> link_to(int peer) = 0;  // null: there is none, as to this rank itself
  // What is ready; empty at the deadline, or when somebody woke this thread. `eager`: the caller has nothing
  // else to do, and its core may be kept for a moment if that is in nobody's way.
  virtual std::vector<Event> wait(Deadline deadline, bool eager = false) = 0;
  virtual void wake() = 0;
  // A group that uses them has failed: whatever ends later must not wait for the others.
  virtual void failed() {}
};

// Who another rank is, for people.
struct PeerProcess {
  std::string address;
  long pid = 0;
};

// What connecting the ranks of a meeting gives each of them (messages/carrier.h).
struct Connections {
  std::unique_ptr<Links> links;
  std::vector<PeerProcess> peers;  // by rank, this one too
  // A machine that has not answered for so long counts as gone; 0: the links find out themselves, if anybody
  // does.
  std::chrono::milliseconds silence{0};
  // Of ranks whose memory this one can read, by rank; empty: of none.
  std::vector<std::optional<PeerMemory>> memories;
};

}  // namespace lockstep::messages
