// The express way serves the most frequent collectives: a barrier, or an all_reduce of data that fit into the
// post lines. If all ranks arrive together, it completes the call without making an operation. If a rank is
// late or disagrees, an operation goes on from there.
#pragma once

#include "lockstep/comm/backends/shared/context.h"
#include "lockstep/comm/call.h"
#include "lockstep/comm/trace/flight_recorder.h"

namespace lockstep::shared {

enum class ExpressResult {
  DONE,    // the result is there
  POSTED,  // this rank has posted; an operation must go on from there
  UNFIT,   // nothing was done
};

// Called with the lock held. `spins`: how often it looks for the other ranks' lines. `record` gets the flight
// recorder's ticket of the call.
ExpressResult express(Context& context, const Request& request, const Call& call, int spins,
                      FlightRecorder::Ticket& record);

}  // namespace lockstep::shared
