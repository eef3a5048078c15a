// CallBook: the operations of one group on this rank. It knows which rank made which call (call_log.h), and
// which of this rank's operations are under way.
//
//   add() --a message--> pending, begins at once ---------------------------------------------> remove()
//         --a collective--> pending, queued --next(): at most ACTIVE_LIMIT move data at once--> remove()
//
// Collectives with parts within nodes take turns, so that these parts come in the same order on all ranks of
// a node.
//
// A rank that waits for a while tells the other ranks which collective it called (due_announcement()).
// Without that, ranks that only wait for each other would never learn that they disagree.
//
// Threads: the fabric's lock.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/comm/backends/messages/call_log.h"

namespace lockstep::messages {

class Operation;

class CallBook {
 public:
  using Operations = std::vector<std::shared_ptr<Operation>>;
  using Time = Deadline::Clock::time_point;
  static constexpr int ACTIVE_LIMIT = 8;  // bounds the scratch memory of a group
  // time that a rank waits before it announces its call
  static constexpr std::chrono::milliseconds SILENCE{20};

  explicit CallBook(int size) : log_(size) {}

  CallLog& log() { return log_; }
  const CallLog& log() const { return log_; }
  const Operations& pending() const { return pending_; }  // oldest first

  void add(const std::shared_ptr<Operation>& operation);
  // Returns the next collective that may begin, or null if none may begin now.
  std::shared_ptr<Operation> next();
  // Removes an operation that is done or failed. Returns null if it is not pending because the group has
  // ended.
  std::shared_ptr<Operation> remove(const Operation& operation);
  // Removes all pending operations, because the group has ended.
  Operations take_all();

  // Changes whenever bytes move. An operation that waits for other operations measures its progress by it.
  std::uint64_t progress() const { return progress_; }
  void count_progress() { ++progress_; }

  // Returns the collective to announce now, or null if there is none. A waiting rank asks again and again.
  const Operation* due_announcement(Time now);
  bool is_announced(const Operation& operation) const;

 private:
  CallLog log_;
  Operations pending_;
  // those of pending_ that are collectives and have not begun
  std::deque<std::shared_ptr<Operation>> queued_;
  int active_ = 0;  // number of collectives in pending_ that have begun
  int local_ = 0;   // number of those that have parts within nodes
  std::uint64_t progress_ = 0;
  std::uint64_t announced_ = 0;    // number of the collective that was announced last
  std::uint64_t waiting_for_ = 0;  // number of the oldest pending collective
  Time waiting_since_;
};

}  // namespace lockstep::messages
