// For tests of the C interface: what its calls return, and the world as C sees it.
//
//   const CWorld c(world());
//   EXPECT_TRUE(ok(lockstep_barrier(c.handle(), NULL)));
//   EXPECT_TRUE(failed(LOCKSTEP_ERROR_INVALID_HANDLE, lockstep_barrier(0, NULL), "is null"));
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "lockstep/c/handles.h"
#include "lockstep/c/lockstep.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/job/job.h"

namespace lockstep::testing {

inline ::testing::AssertionResult ok(int code) {
  if (code == LOCKSTEP_OK) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << lockstep_code_name(code) << ": " << lockstep_error_text();
}

// That code, with a text that contains `part`.
inline ::testing::AssertionResult failed(int wanted, int code, const std::string& part) {
  const std::string text = code == LOCKSTEP_OK ? "" : lockstep_error_text();
  if (code == wanted && text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << lockstep_code_name(code) << ": " << text << "\ninstead of "
                                       << lockstep_code_name(wanted) << ": ..." << part << "...";
}

// LOCKSTEP_WORLD; ranks that are threads of one process get a handle of their group, because a process has
// one world.
class CWorld {
 public:
  explicit CWorld(const ProcessGroup& group)
      : is_lent_(!is_initialized()), handle_(is_lent_ ? c::handle_of(group) : LOCKSTEP_WORLD) {}
  CWorld(const CWorld&) = delete;
  CWorld& operator=(const CWorld&) = delete;
  ~CWorld() {
    if (is_lent_) lockstep_group_free(handle_);
  }
  lockstep_group handle() const { return handle_; }

 private:
  const bool is_lent_;
  const lockstep_group handle_;
};

}  // namespace lockstep::testing
