// Sub-groups over shared memory. The ranks of a new group already map each other's data segments. The only
// new memory is a control block in the segment of the group's rank 0.
//
//   std::shared_ptr<Backend> row = split_group(*world, membership, {{{0, 1}, {2, 3}}, "row", options});
//
// One exchange on the parent, of all its ranks or of the members, collects the addresses of the blocks. It
// also checks that all ranks asked for the same groups. RankMemory takes a block back when all members have
// left.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/backends/shared/engine.h"

namespace lockstep::shared {

// Makes an engine. In a wait it helps the rank's other groups, and they help it.
std::shared_ptr<SharedEngine> make_engine(Membership membership);

// See Backend::make_groups. `parent` is the membership that `engine` was made of.
std::shared_ptr<Backend> split_group(SharedEngine& engine, const Membership& parent,
                                     const SplitRequest& split);

}  // namespace lockstep::shared
