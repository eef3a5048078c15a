// The machines of a job as horovodrun takes them. Pure.
//
//   const std::vector<Host> hosts = parse_hosts("w0:2,w1:2", "-H");
//   first_slots(hosts, 3);                        // w0 with two ranks, w1 with one
//
// Fails   UsageError: a part that is not HOST:SLOTS, a host that is there twice, more ranks than slots.
// Source  horovod/runner/common/util/hosts.py.
#pragma once

#include <string>
#include <vector>

#include "cli/deepspeed/hostfile.h"

namespace lockstep::cli {

// `option` is what messages call the text.
std::vector<Host> parse_hosts(const std::string& text, const std::string& option);
// The first `ranks` slots, host by host.
std::vector<Host> first_slots(const std::vector<Host>& hosts, int ranks);

}  // namespace lockstep::cli
