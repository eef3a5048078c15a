// main() of the multi-rank test binaries. Started by a test of its own (see ranks.h), the process is one rank of that test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/ranks_child.h"

int main(int argc, char** argv) {
  const auto child = lockstep::harness::child_plan(&argc, argv);
  testing::InitGoogleMock(&argc, argv);
  if (child) lockstep::harness::become_child(*child);
  return RUN_ALL_TESTS();
}
