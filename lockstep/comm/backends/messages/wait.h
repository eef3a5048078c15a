// Wait: makes a rank wait for one operation. Meanwhile the rank serves the connections, helps its node
// (node.h), and tells the other ranks which collective it called. It warns, and at the deadline it fails the
// group with the names of the late ranks.
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
  // Without a `timeout`, the group's counts.
  Wait(Core& core, Session& session, Operation& operation, std::optional<std::chrono::nanoseconds> timeout);

  // Returns when the operation is done or failed. At the deadline it records the failure that ends the
  // operation.
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
  Time look_;                           // next time to look at silent machines
  std::optional<Node::Helper> helper_;  // only if this rank shares memory with others
};

}  // namespace lockstep::messages
