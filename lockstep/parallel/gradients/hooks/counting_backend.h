// A group that counts the bytes that this rank sends on it. Otherwise it is the group it was made of: the
// same ranks and operations, in one order with the operations of the original. Communication hooks get one,
// so that their bytes are measured, not claimed.
//
//   auto sent = std::make_shared<std::atomic<std::uint64_t>>(0);
//   const ProcessGroup counted = counting_group(group, sent);
//
// Counted   A rank's contribution to an operation counts once, however many ranks receive it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "lockstep/comm/process_group.h"

namespace lockstep {

ProcessGroup counting_group(const ProcessGroup& group, std::shared_ptr<std::atomic<std::uint64_t>> sent);

}  // namespace lockstep
