// What lockstep_gloo.so offers to the library, which links no Gloo and opens the module when a group asks for
// it (gloo/library.h). The module is gloo/module.cpp, built against the system's Gloo; it links nothing of
// Lockstep, so this header stands alone.
//
//   Module& module = *reinterpret_cast<Module*(*)()>(dlsym(handle, MODULE_ENTRY))();
//   Text error = {};
//   std::unique_ptr<Streams> streams(module.open({.rank = 1, .size = 3, .address = "127.0.0.1"}, error));
//   tell_all(streams->address_for(0), streams->address_for(2));                // by other means
//   streams->connect(0, theirs0), streams->connect(2, theirs2);
//   if (const int missing = streams->wait_connected(deadline, error); missing >= 0)
//     throw PeerLost(error.data(), missing);
//
// Memory      What one side allocates that side frees: the module sees its own libraries first
//             (RTLD_DEEPBIND), so operator new here and delete there need not be those of one allocator.
// Threads     Gloo has a thread for its sockets, and blocks those who wait for one packet, so Streams has two
//             threads for each other rank. They never call anything of Lockstep.
// Signals     None: Gloo writes to sockets in a way that raises SIGPIPE, which is held back on every thread
//             while it does.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <span>

namespace lockstep::gloo {

inline constexpr const char* MODULE_ENTRY = "lockstep_gloo_module_2";  // changes with what is below

using TimePoint = std::chrono::steady_clock::time_point;
using Text = std::array<char, 512>;

// A stream of bytes to and from every other rank.
class Streams {
 public:
  struct Ready {
    int member = 0;
    bool readable = false;
    bool writable = false;
  };
  struct Moved {
    std::size_t bytes = 0;
    const char* broken = nullptr;  // why no more will come through; valid as long as the streams
    bool by_peer = false;          // because the other process closed the connection, or ended
  };

  Streams() = default;
  // Does not communicate: sockets are closed. Takes some 20 ms, two rounds of Gloo's thread.
  virtual ~Streams() = default;
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  // ---- to begin with
  // Where this process listens for that member, in Gloo's own form, which has the same size for all.
  virtual std::span<const char> address_for(int member) const = 0;
  // Begins to connect, with the address at which that member listens for this one.
  virtual void connect(int member, std::span<const char> address) = 0;
  // -1 when all are connected; else one that is not: broken, with the reason in `error`, or, at the deadline,
  // still on its way.
  virtual int wait_connected(TimePoint deadline, Text& error) = 0;

  // ---- with all connected; those that name a member by one thread at a time
  // Copies as much as there is room for; 0 bytes: not now.
  virtual Moved send(int member, const std::array<std::span<const std::byte>, 2>& parts) = 0;
  virtual Moved receive(int member, std::span<std::byte> buffer) = 0;
  // Whether the other side has read all that was sent (or is gone); asks it.
  virtual bool flushed(int member) = 0;
  virtual void want_write(int member, bool wanted) = 0;
  virtual void close(int member) = 0;
  // Who can be read from (or is broken), or written to where that is wanted. Blocks until there is one; 0 at
  // the deadline, or when somebody woke this thread. Beside the others.
  virtual std::size_t wait(std::span<Ready> ready, TimePoint deadline) = 0;
  virtual void wake() = 0;
};

struct Place {
  int rank = 0;
  int size = 1;
  const char* address = "";                  // of this machine, in digits: where to listen
  std::chrono::milliseconds patience{1000};  // with one connection
};

class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  virtual const char* library() const = 0;  // "Gloo 0.5.0"
  // For the caller to delete; null with what is wrong in `error`.
  virtual Streams* open(const Place& place, Text& error) = 0;
};

}  // namespace lockstep::gloo
