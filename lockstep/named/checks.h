// check: whether a request can be carried out at all, before anything is sent.
//
//   check(submission, sets);              // throws InvalidArgument that names the operation and the reason
//
// Fills in the splits of an ALLTOALL that has none: equal parts.
#pragma once

#include "lockstep/named/operation.h"
#include "lockstep/named/process_sets.h"

namespace lockstep::named {

void check(Submission& submission, const ProcessSets& sets);

}  // namespace lockstep::named
