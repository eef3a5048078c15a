// main() of the multi-rank test binaries. Started by a test of its own (see ranks.h), the process is one rank
// of that test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/fork_server.h"
#include "testing/ranks_child.h"

int main(int argc, char** argv) {
  lockstep::harness::serve_cases(&argc, &argv);
  const auto child = lockstep::harness::child_plan(&argc, argv);
  testing::InitGoogleMock(&argc, argv);
  if (child) lockstep::harness::become_child(*child);
  if (!child && lockstep::harness::is_in_given_world()) lockstep::harness::join_given_world();
  return RUN_ALL_TESTS();
}

#ifdef __SANITIZE_THREAD__
// The count of references to an exception lives in libstdc++, which is not instrumented: ThreadSanitizer sees
// the last owner free what another thread has read, and not the count between them.
extern "C" const char* __tsan_default_suppressions() {  // NOLINT: the sanitizer's name for it
  return "race:std::__exception_ptr::exception_ptr::_M_release\n";
}
#endif
