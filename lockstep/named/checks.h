// check: whether a request can be carried out at all, before anything is sent.
//
//   check(request, sets);                 // throws InvalidArgument that names the operation and the reason
//   check_memory(request, input, output);
//
// Fills in the splits of an ALLTOALL that has none: equal parts.
#pragma once

#include "lockstep/named/operation.h"
#include "lockstep/named/process_sets.h"

namespace lockstep::named {

void check(Request& request, const ProcessSets& sets);
void check_memory(const Request& request, const void* input, const void* output);

}  // namespace lockstep::named
