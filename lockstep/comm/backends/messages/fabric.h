// Fabric: what serves the connections of this process (lines.h): the ranks that wait and one thread
// (turns.h), under one lock; and the groups whose messages the connections carry. There is one fabric per
// world; groups made of its ranks share the connections.
//
//   auto running = std::make_shared<Running>(std::move(connections), my_rank);
//   running->start();
//   const Session session(running->fabric());  // lock; on leaving it, whatever became ready is carried on
//   running->fabric().lines().to(3).post(header);
//
// Threads     one lock for everything here and in the groups. The thread that holds it does the work:
//             callers do what can be written at once, and the one that serves the connections does what
//             arrives.
// Lifetime    the thread ends with the last group. A group or operation whose last reference goes while the
//             lock is held is destroyed after the lock is released (hold_until_unlocked), by the thread
//             itself if need be.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/comm/backends/messages/lines.h"
#include "lockstep/comm/backends/messages/turns.h"

namespace lockstep::messages {

class Core;
class Operation;
class Session;

class Fabric final : public FrameReceiver {
 public:
  Fabric(Connections connections, int rank) : rank_(rank), lines_(std::move(connections), *this) {}

  int rank() const { return rank_; }
  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }

  // ---- with the lock
  Lines& lines() { return lines_; }
  Turns& turns() { return turns_; }
  void add(std::uint64_t id, const std::shared_ptr<Core>& group) { groups_[id] = group; }
  void remove(std::uint64_t id) { groups_.erase(id); }
  // For groups led by this rank: unique in the world together with the rank.
  std::uint32_t next_group() { return ++last_group_; }
  // `operation` has nothing left to wait for and can carry on.
  void ready(std::shared_ptr<Operation> operation) { ready_.push_back(std::move(operation)); }
  void hold_until_unlocked(std::shared_ptr<void> object) { held_.push_back(std::move(object)); }
  // Returns when there may be news for those who wait, or at the time given. Serves the connections
  // meanwhile, if nobody does.
  void wait(Session& session, Deadline::Clock::time_point until);
  // Everything that is ready. Comes before news of a failure too: what had arrived by then is not undone by
  // it.
  void carry_on();
  // Carries on and tells waiters. What is to be released after unlocking is returned.
  std::vector<std::shared_ptr<void>> settle();
  void end_silent();

  // ---- without it
  void poll();  // serves what has arrived
  void run();   // the thread, until stop()
  void stop();

 private:
  void has_to_pull(int peer) override;
  Destination place_for(int peer, const Header& header) override;
  void arrived(int peer, const Header& header, std::vector<std::byte> payload) override;
  std::shared_ptr<Core> find(std::uint64_t id);
  void turn(Deadline deadline);
  void serve(const std::vector<Links::Event>& events);
  void tell_of_loss(int peer);

  const int rank_;
  std::mutex mutex_;
  // guarded by mutex_
  Lines lines_;
  Turns turns_;
  std::map<std::uint64_t, std::weak_ptr<Core>> groups_;
  std::uint32_t last_group_ = 0;
  std::vector<std::shared_ptr<Operation>> ready_;
  std::vector<std::shared_ptr<void>> held_;
};

// Holds the lock of a fabric.
class Session {
 public:
  explicit Session(Fabric& fabric) : fabric_(fabric), lock_(fabric.lock()) {}
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
