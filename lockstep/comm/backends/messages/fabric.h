// Fabric: serves the connections of this process (lines.h) and knows the groups whose messages they carry.
// Waiting ranks and one thread take turns at serving (turns.h), under one lock. There is one fabric per
// world. Groups made of its ranks share the connections.
//
//   auto running = std::make_shared<Running>(std::move(connections), my_rank);
//   running->start();
//   const Session session(running->fabric());  // lock; on leaving it, whatever became ready is carried on
//   running->fabric().lines().to(3).post(header);
//
// Threads     one lock guards everything here and in the groups. A calling thread writes what the link takes
//             at once. The thread that serves the connections handles what arrives.
// Lifetime    the fabric's thread ends with the last group. The last reference to a group or operation may go
//             while the lock is held. The object is then destroyed after the lock is released
//             (hold_until_unlocked), by the thread itself if need be.
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

  // ---- with the lock held
  Lines& lines() { return lines_; }
  Turns& turns() { return turns_; }
  void add(std::uint64_t id, const std::shared_ptr<Core>& group) { groups_[id] = group; }
  void remove(std::uint64_t id) { groups_.erase(id); }
  bool has_groups() const { return !groups_.empty(); }
  // Returns a number for a group led by this rank. Number and rank together are unique in the world.
  std::uint32_t next_group() { return ++last_group_; }
  // `operation` has nothing left to wait for, so the next settle() carries it on.
  void ready(std::shared_ptr<Operation> operation) { ready_.push_back(std::move(operation)); }
  void hold_until_unlocked(std::shared_ptr<void> object) { held_.push_back(std::move(object)); }
  // Returns when there may be news for waiting ranks, or at the given time. Serves the connections meanwhile,
  // unless another thread does.
  void wait(Session& session, Deadline::Clock::time_point until);
  // Carries on every operation that is ready. This comes before news of a failure too: what had arrived by
  // then stays complete.
  void carry_on();
  // Carries on operations and wakes waiting ranks. Returns the objects to release after unlocking.
  std::vector<std::shared_ptr<void>> settle();
  void end_silent();

  // ---- without the lock
  void poll();  // serves what has arrived
  void run();   // body of the fabric's thread, until stop()
  void stop();
  void wait_for_end_of_thread(Deadline deadline);

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

  void settle() { keep(fabric_.settle()); }  // keeps the lock
  std::unique_lock<std::mutex>& lock() { return lock_; }

 private:
  void keep(std::vector<std::shared_ptr<void>> released);

  Fabric& fabric_;
  std::vector<std::shared_ptr<void>> released_;  // released after the lock, because lock_ is declared later
  std::unique_lock<std::mutex> lock_;
};

// A fabric and its thread. The last reference stops the thread, from any thread.
class Running {
 public:
  Running(Connections connections, int rank)
      : fabric_(std::make_shared<Fabric>(std::move(connections), rank)) {}
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  Fabric& fabric() { return *fabric_; }
  // Begins to read. The first group must have been added before, or frames that other ranks have sent to it
  // would be lost.
  void start();
  // Stops the thread and waits until it has made its last call of the engine. Called without the fabric's
  // lock. Does not wait on the thread itself.
  void end(Deadline deadline);

 private:
  std::shared_ptr<Fabric> fabric_;
  std::thread thread_;
};

}  // namespace lockstep::messages
