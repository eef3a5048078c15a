// how_started: describes how this process came into its job, for warnings of waits inside
// init_process_group(). If ranks wait for each other without success, they were often started in two
// different ways.
//
//   how_started(facts)    "this rank was started by torchrun (RANK=1, WORLD_SIZE=2, MASTER_PORT=29500) and
//                         meets the others at ..."
#pragma once

#include <string>

#include "lockstep/job/rendezvous_plan.h"

namespace lockstep {

std::string how_started(const RendezvousFacts& facts);

}  // namespace lockstep
