// main() of the test binaries whose tests are one process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/fork_server.h"

int main(int argc, char** argv) {
  lockstep::harness::serve_cases(&argc, &argv);
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
