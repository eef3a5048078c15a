#include "lockstep/os/machine.h"

#include <gtest/gtest.h>

#include "testing/temp_folder.h"

namespace lockstep {
namespace machine_test {

// A container may have the second and the fourth GPU of a machine. The other files belong to the driver.
TEST(Machine, CountsTheGpusThatAreThereWhateverTheirNumbers) {
  const testing::TempFolder devices;
  EXPECT_EQ(gpu_count(devices.path()), 0);
  for (const char* name :
       {"nvidia1", "nvidia3", "nvidia10", "nvidia", "nvidiactl", "nvidia-uvm", "nvidia2x", "xnvidia2"})
    devices.write(name, "");
  EXPECT_EQ(gpu_count(devices.path()), 3);
  EXPECT_EQ(gpu_count(devices / "missing"), 0);
}

}  // namespace machine_test
}  // namespace lockstep
