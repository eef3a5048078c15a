// The interface of lockstep_gloo.so. The library links no Gloo, and opens the module when a group needs it
// (gloo/library.h). The module is gloo/module.cpp, built against the system's Gloo. It links nothing of
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
// Memory      Each side frees what it allocates. The module sees its own libraries first (RTLD_DEEPBIND), so
//             operator new here and delete there may belong to two allocators.
// Threads     Gloo has one thread for its sockets. It waits for a single packet in a blocking call, so
//             Streams has two threads for each other rank. They never call anything of Lockstep.
// Signals     None reach the program. Gloo writes to sockets in a way that raises SIGPIPE, so the module
//             blocks that signal on every thread during such a write.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <span>

namespace lockstep::gloo {

inline constexpr const char* MODULE_ENTRY = "lockstep_gloo_module_2";  // changes with every change below

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
    const char* broken = nullptr;  // the reason why no more bytes will pass; valid as long as the streams
    bool by_peer = false;          // the other process closed the connection, or ended
  };

  Streams() = default;
  // Does not communicate; sockets are closed. Takes some 20 ms, two rounds of Gloo's thread.
  virtual ~Streams() = default;
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  // ---- to begin with
  // Returns where this process listens for that member, in Gloo's own form, whose size is the same
  // everywhere.
  virtual std::span<const char> address_for(int member) const = 0;
  // Begins to connect. `address` is where that member listens for this process.
  virtual void connect(int member, std::span<const char> address) = 0;
  // Returns -1 when all members are connected, else the number of one that is not. If that connection is
  // broken, `error` has the reason. Otherwise the deadline has passed.
  virtual int wait_connected(TimePoint deadline, Text& error) = 0;

  // ---- when all are connected; for each member, one thread at a time
  // Copies as much as there is room for; 0 bytes means none now.
  virtual Moved send(int member, const std::array<std::span<const std::byte>, 2>& parts) = 0;
  virtual Moved receive(int member, std::span<std::byte> buffer) = 0;
  // Returns whether the other side has read everything that was sent, or is gone. Asks the other side.
  virtual bool flushed(int member) = 0;
  virtual void want_write(int member, bool wanted) = 0;
  virtual void close(int member) = 0;
  // Returns members that can be read (or are broken), and members that can be written to where that is
  // wanted. Blocks until there is one; returns 0 at the deadline or after wake(). May run beside the other
  // functions.
  virtual std::size_t wait(std::span<Ready> ready, TimePoint deadline) = 0;
  virtual void wake() = 0;
};

struct Place {
  int rank = 0;
  int size = 1;
  const char* address = "";                  // of this machine, in digits; the module listens there
  std::chrono::milliseconds patience{1000};  // how long to try one connection
};

class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  virtual const char* library() const = 0;  // "Gloo 0.5.0"
  // The caller deletes the result. Null with the reason in `error`.
  virtual Streams* open(const Place& place, Text& error) = 0;
};

}  // namespace lockstep::gloo
