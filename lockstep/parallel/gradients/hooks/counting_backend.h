// A group that counts what this rank sends on it, and otherwise is the group it was made of: same ranks, same
// operations, in the same order with those of the original. Communication hooks get one, so that their bytes
// are measured, not claimed.
//
//   auto sent = std::make_shared<std::atomic<std::uint64_t>>(0);
//   const ProcessGroup counted = counting_group(group, sent);
//
// Counted   what this rank contributes to an operation, once, however many ranks take it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "lockstep/comm/process_group.h"

namespace lockstep {

ProcessGroup counting_group(const ProcessGroup& group, std::shared_ptr<std::atomic<std::uint64_t>> sent);

}  // namespace lockstep
