// thread: ranks as threads of one process. It runs the whole shared-memory engine without processes, for
// tests and ThreadSanitizer.
//
//   auto groups = make_thread_groups(4);
//   std::vector<std::jthread> ranks;
//   for (auto& group : groups) ranks.emplace_back([&group] { comm::barrier(group); });
//
// Each group is used by one thread. A thread that ends without close() is not noticed, because a thread's end
// cannot be watched. Its peers wait until their timeout.
#pragma once

#include <vector>

#include "lockstep/comm/process_group.h"

namespace lockstep {

std::vector<ProcessGroup> make_thread_groups(int size, const GroupOptions& options = {});

}  // namespace lockstep
