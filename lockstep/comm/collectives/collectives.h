// All verbs below libtorch, one header each. coalesced.h and objects.h build on them and are included
// separately.
#pragma once

#include "lockstep/comm/collectives/all_gather.h"         // every rank gets every rank's buffer
#include "lockstep/comm/collectives/all_reduce.h"         // every rank gets the combination of all buffers
#include "lockstep/comm/collectives/all_to_all.h"         // every rank sends another buffer to every rank
#include "lockstep/comm/collectives/barrier.h"            // wait for each other
#include "lockstep/comm/collectives/broadcast.h"          // every rank gets the root's buffer
#include "lockstep/comm/collectives/gather.h"             // the root gets every rank's buffer
#include "lockstep/comm/collectives/monitored_barrier.h"  // a barrier that names the missing ranks
#include "lockstep/comm/collectives/point_to_point.h"     // one rank to another
#include "lockstep/comm/collectives/reduce.h"             // the root gets the combination of all buffers
#include "lockstep/comm/collectives/reduce_scatter.h"     // every rank gets its part of the combination
#include "lockstep/comm/collectives/scatter.h"            // every rank gets its part of the root's buffer
