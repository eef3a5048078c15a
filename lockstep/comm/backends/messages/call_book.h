// CallBook: the operations of one group on this rank: which ranks called which (call_log.h), and which of
// this rank's operations are under way.
//
//   add() --a message--> pending, begins at once ---------------------------------------------> remove()
//         --a collective--> pending, queued --next(): at most ACTIVE_LIMIT move data at once--> remove()
//
// Collectives with parts within nodes take turns, so that these parts come in the same order on all ranks of
// a node.
//
// A rank that waits for a while tells the others which collective it called (due_announcement()): ranks that
// only wait for each other learn so that they disagree.
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
  static constexpr int ACTIVE_LIMIT = 8;                   // bounds the scratch memory of a group
  static constexpr std::chrono::milliseconds SILENCE{20};  // before an announcement

  explicit CallBook(int size) : log_(size) {}

  CallLog& log() { return log_; }
  const CallLog& log() const { return log_; }
  const Operations& pending() const { return pending_; }  // oldest first

  void add(const std::shared_ptr<Operation>& operation);
  // The next collective that may begin; null if none may now.
  std::shared_ptr<Operation> next();
  // It is done or failed. Null if it is not pending: the whole group is over.
  std::shared_ptr<Operation> remove(const Operation& operation);
  // All that is pending: the group is over.
  Operations take_all();

  // Changes whenever bytes move. For operations that wait until others are over.
  std::uint64_t progress() const { return progress_; }
  void count_progress() { ++progress_; }

  // The collective to announce now, null if there is none. Asked again and again by a rank that waits.
  const Operation* due_announcement(Time now);
  bool is_announced(const Operation& operation) const;

 private:
  CallLog log_;
  Operations pending_;
  std::deque<std::shared_ptr<Operation>> queued_;  // of them, collectives that have not begun
  int active_ = 0;                                 // of them, collectives that have,
  int local_ = 0;                                  // and of these, those with parts within nodes
  std::uint64_t progress_ = 0;
  std::uint64_t announced_ = 0;    // collective
  std::uint64_t waiting_for_ = 0;  // the oldest pending collective,
  Time waiting_since_;
};

}  // namespace lockstep::messages
