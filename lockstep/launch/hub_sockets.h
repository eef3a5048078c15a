// The star of socket pairs through which the ranks of one machine meet (comm/meeting/hub.h): rank 0 is its
// centre.
//
//   auto hub = make_hub_sockets(ranks);  // hub[r]: what rank r inherits, in the order of LOCKSTEP_HUB_FDS
//   ... start rank r ...; hub[r].clear();                   // so that a rank's death closes its connections
#pragma once

#include <vector>

#include "lockstep/os/fd.h"

namespace lockstep {

// Fails: SystemError when no more descriptors can be opened.
std::vector<std::vector<Fd>> make_hub_sockets(int ranks);

}  // namespace lockstep
