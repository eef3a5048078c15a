// make_hub_sockets: the socket pairs through which the ranks of one machine meet (comm/meeting/hub.h). They
// form a star with rank 0 at its centre.
//
//   auto hub = make_hub_sockets(ranks);  // hub[r]: the sockets that rank r inherits, in LOCKSTEP_HUB_FDS'
//   order
//   ... start rank r ...; hub[r].clear();                   // so that a rank's death closes its connections
#pragma once

#include <vector>

#include "lockstep/os/fd.h"

namespace lockstep {

// Throws SystemError if no more descriptors can be opened.
std::vector<std::vector<Fd>> make_hub_sockets(int ranks);

}  // namespace lockstep
