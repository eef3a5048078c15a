// The express way serves the most frequent collectives: a barrier, or an all_reduce of data that fit into the
// post lines. It serves ranks that arrive together. It has the effect of an operation, but makes an operation
// only if a rank is late or disagrees.
#pragma once

#include "lockstep/comm/backends/shared/context.h"
#include "lockstep/comm/call.h"
#include "lockstep/comm/trace/flight_recorder.h"

namespace lockstep::shared {

enum class ExpressResult {
  DONE,    // the result is there
  POSTED,  // this rank has posted, and an operation goes on from there
  UNFIT,   // nothing was done
};

// With the lock. `spins`: how often it looks for the others' lines. `record` gets the flight recorder's
// ticket of the call.
ExpressResult express(Context& context, const Request& request, const Call& call, int spins,
                      FlightRecorder::Ticket& record);

}  // namespace lockstep::shared
