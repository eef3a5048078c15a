// common_file: memory of all ranks of one machine that lies in a file, so that it may be more than the
// machine has. The kernel reads its pages as they are touched, and writes back and drops what was not used
// for long.
//
//   const std::shared_ptr<void> memory = zero::common_file(group, "/nvme/scratch", bytes);     // zeros
//
// Collective  every rank of a group on one machine, with the same folder and bytes. Blocks until all have
//             called.
// File        has a name for the moment of this call, and none afterwards: it goes with the last rank. A job
//             that is killed in that moment leaves ".lockstep-memory-XXXXXX".
// Fails       SystemError naming the folder: missing, not writable, full, or not the same folder for
//             all ranks.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "lockstep/comm/process_group.h"

namespace lockstep::zero {

std::shared_ptr<void> common_file(const ProcessGroup& group, const std::string& folder, std::size_t bytes);

}  // namespace lockstep::zero
