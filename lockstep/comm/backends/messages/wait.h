// Wait: a rank waits for one operation. It serves the connections, helps its node (node.h), tells the others
// which collective it called, warns, and at the deadline it fails the group, with the names of the late
// ranks.
//
//   Session session(core.roster().fabric());
//   Wait(core, session, operation, timeout).run();
//
// Threads: the fabric's lock, which is released while there is nothing to do.
#pragma once

#include <chrono>
#include <optional>

#include "lockstep/comm/backends/messages/core.h"
#include "lockstep/comm/group/progress_clock.h"

namespace lockstep::messages {

class Wait {
 public:
  // `timeout` without a value means the group's.
  Wait(Core& core, Session& session, Operation& operation, std::optional<std::chrono::nanoseconds> timeout);

  // Returns when the operation is done or failed, or records the failure that ends it.
  void run();

 private:
  using Time = ProgressClock::Time;
  bool look_at_clock(Time now);
  void look_at_machines(Time now);
  void help();
  Time until(Time now) const;
  void help_other_groups();

  Core& core_;
  Session& session_;
  Operation& operation_;
  ProgressClock clock_;
  Time look_;                           // at machines, the next time
  std::optional<Node::Helper> helper_;  // of a rank that shares memory with others
};

}  // namespace lockstep::messages
