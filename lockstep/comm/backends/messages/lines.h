// Lines: the connections of this process to all other ranks of the world, by rank, and the links below them.
//
//   Lines lines(std::move(connections), my_rank, receiver);
//   lines.to(3).post(header);
//   lines.serve(lines.await(deadline), [](int peer) { tell_of_loss(peer); });
//
// Threads: the fabric's lock, except for await() and wake(), which are called without it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/comm/backends/messages/connection.h"

namespace lockstep::messages {

class Lines {
 public:
  using OnLoss = std::function<void(int peer)>;  // the connection to `peer` has just ended

  // `receiver` gets the frames that arrive.
  Lines(Connections connections, FrameReceiver& receiver);

  Connection& to(int rank) { return *connections_.at(static_cast<std::size_t>(rank)); }
  const PeerProcess& peer(int rank) const { return peers_.at(static_cast<std::size_t>(rank)); }
  // How the connection to `rank` ended: as an enum and in words. NONE and empty while it lives, and for this
  // rank itself.
  StreamEnd end_of(int rank) const;
  const std::string& why_ended(int rank) const;
  bool flushed() const;
  void group_failed() { links_->failed(); }

  // Called without the lock. noexcept: a process whose kernel refuses to wait cannot go on, so it ends.
  std::vector<Links::Event> await(Deadline deadline, bool eager = false) noexcept {
    return links_->wait(deadline, eager);
  }
  void wake() { links_->wake(); }

  void serve(const std::vector<Links::Event>& events, const OnLoss& on_loss);
  // Ends the connections to machines that have been silent for too long. A waiting rank calls it now and
  // then.
  void end_silent(const OnLoss& on_loss);
  // Notes that there is a message to read out of the memory of `peer`. serve() reads it piece by piece, and
  // looks at the connections between two pieces.
  void has_to_pull(int peer);
  bool is_pulling() const { return !pulling_.empty(); }

 private:
  void pull();  // reads one piece over each connection that has some

  const std::unique_ptr<Links> links_;
  const std::chrono::milliseconds silence_;
  std::vector<PeerProcess> peers_;
  std::vector<std::unique_ptr<Connection>> connections_;  // by rank; null for this rank
  std::vector<int> pulling_;                              // peers whose memory is to be read
};

}  // namespace lockstep::messages
