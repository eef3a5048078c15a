// ForkGuard: knows whether this process was forked from the one that made a group. Threads, locks and
// connections of the group belong to the parent, so the child must not touch them.
//
//   const ForkGuard fork_guard_{};                      // a member of the group
//   fork_guard_.refuse("split", place());               // throws Aborted in a fork
#pragma once

#include <string>
#include <string_view>

#include "lockstep/comm/group/group_failure.h"
#include "lockstep/os/fork_generation.h"

namespace lockstep {

class ForkGuard {
 public:
  bool is_fork() const { return fork_generation() != made_in_; }
  void refuse(std::string_view what, const GroupPlace& place) const {
    if (is_fork()) throw_forked(std::string(what), place);
  }

 private:
  const unsigned made_in_ = fork_generation();
};

}  // namespace lockstep
