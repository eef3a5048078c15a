// Fabric: the connections of this process to all other ranks of the world, the thread that serves them, and
// the groups whose messages they carry. There is one fabric per world; groups made of its ranks share the
// connections.
//
//   auto running = std::make_shared<Running>(std::move(connections), my_rank);
//   running->start();
//   const Session session(running->fabric());  // lock; on leaving it, whatever became ready is carried on
//   running->fabric().to(3).post(header);
//
// Threads     one lock for everything here and in the groups. Work is done by whoever holds it: callers for
// what can be written at
//             once, and for what arrives whoever serves the connections:
//
//               THREAD  --somebody waits, after a turn--> NOBODY --wait()--> WAITER --its turn is over-->
//                       NOBODY
//                  ^--something is pending that nobody waits for, or nobody has waited for a while--|
//
//             A waiter that serves itself has its answer without a change between threads, which costs more
//             than the message.
// Lifetime    the thread ends with the last group. A group or operation whose last reference goes while the
// lock is held is
//             destroyed after the lock is released (hold_until_unlocked), by the thread itself if need be.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/comm/backends/messages/connection.h"

namespace lockstep::messages {

class Core;
class Operation;
class Session;

class Fabric final : public FrameReceiver {
 public:
  Fabric(Connections connections, int rank);

  std::mutex mutex;

  // ---- with the lock
  int rank() const { return rank_; }
  Connection& to(int rank) { return *connections_.at(static_cast<std::size_t>(rank)); }
  // How the connection to `rank` ended, and in words; NONE and empty while it lives, and for this rank
  // itself.
  StreamEnd end_of(int rank) const;
  const std::string& why_ended(int rank) const;
  const PeerProcess& peer(int rank) const { return peers_.at(static_cast<std::size_t>(rank)); }
  void add(std::uint64_t id, const std::shared_ptr<Core>& group) { groups_[id] = group; }
  void remove(std::uint64_t id) { groups_.erase(id); }
  // For groups led by this rank: unique in the world together with the rank.
  std::uint32_t next_group() { return ++last_group_; }
  // `operation` has nothing left to wait for and can carry on.
  void ready(std::shared_ptr<Operation> operation) { ready_.push_back(std::move(operation)); }
  // On unlocking: an operation has ended, or there is something to help with.
  void tell_waiters() { news_ = true; }
  void hold_until_unlocked(std::shared_ptr<void> object) { held_.push_back(std::move(object)); }
  // Returns when there may be news for those who wait, or at the time given. Serves the connections
  // meanwhile, if nobody does.
  void wait(Session& session, Deadline::Clock::time_point until);
  // Of operations: those that are pending while nobody waits are the thread's.
  void count_pending(std::ptrdiff_t more) { pending_ += more; }
  void serve_pending();
  // Everything that is ready. Comes before news of a failure too: what had arrived by then is not undone by
  // it.
  void carry_on();
  // Carries on and tells waiters. What is to be released after unlocking is returned.
  std::vector<std::shared_ptr<void>> settle();
  bool flushed() const;
  void group_failed() { links_->failed(); }
  // Ends connections to machines that have been silent for too long. Whoever waits looks now and then.
  void end_silent();

  // ---- without it
  void poll();  // serves what has arrived
  void run();   // the thread, until stop()
  void stop();

 private:
  enum class Server { THREAD, NOBODY, WAITER };

  void has_to_pull(int peer) override;
  Destination place_for(int peer, const Header& header) override;
  void arrived(int peer, const Header& header, std::vector<std::byte> payload) override;
  std::shared_ptr<Core> find(std::uint64_t id);
  // Without the lock. What cannot wait for its connections cannot go on: ends the process.
  std::vector<Links::Event> await(Deadline deadline, bool eager = false) noexcept {
    return links_->wait(deadline, eager);
  }
  void turn(Deadline deadline);
  void serve(const std::vector<Links::Event>& events);
  void pull();  // a piece over each connection that has some
  void rest(std::unique_lock<std::mutex>& lock);
  void tell_of_loss(int peer);

  const int rank_;
  const std::unique_ptr<Links> links_;
  const std::chrono::milliseconds silence_;
  // guarded by mutex
  std::vector<PeerProcess> peers_;
  std::vector<std::unique_ptr<Connection>> connections_;  // by rank, null for this one
  std::map<std::uint64_t, std::weak_ptr<Core>> groups_;
  std::vector<int> pulling_;  // peers
  std::vector<std::shared_ptr<Operation>> ready_;
  std::vector<std::shared_ptr<void>> held_;
  std::uint32_t last_group_ = 0;
  Server server_ = Server::THREAD;
  std::condition_variable changed_;  // there is news for those who wait
  std::condition_variable called_;   // it is the thread's turn
  int waiting_ = 0;                  // calls of wait()
  bool was_served_ = false;          // by one of them, since the thread looked
  std::ptrdiff_t pending_ = 0;       // operations
  bool news_ = false;
  bool stopping_ = false;
};

// Holds the lock of a fabric.
class Session {
 public:
  explicit Session(Fabric& fabric) : fabric_(fabric), lock_(fabric.mutex) {}
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void settle() { keep(fabric_.settle()); }  // and keep the lock
  std::unique_lock<std::mutex>& lock() { return lock_; }

 private:
  void keep(std::vector<std::shared_ptr<void>> released);

  Fabric& fabric_;
  std::vector<std::shared_ptr<void>> released_;  // after the lock, which is declared later
  std::unique_lock<std::mutex> lock_;
};

// A fabric and its thread; the last reference stops it, from whichever thread.
class Running {
 public:
  Running(Connections connections, int rank)
      : fabric_(std::make_shared<Fabric>(std::move(connections), rank)) {}
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  Fabric& fabric() { return *fabric_; }
  // Begins to read; the first group has been added by then, or what others have sent to it already would be
  // lost.
  void start();

 private:
  std::shared_ptr<Fabric> fabric_;
  std::thread thread_;
};

}  // namespace lockstep::messages
