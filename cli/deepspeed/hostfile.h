// The machines of a job as DeepSpeed's launcher takes them: a hostfile, and filters over its hosts and slots.
// Pure.
//
//   const std::vector<Host> hosts = parse_hostfile("worker-1 slots=4\nworker-2 slots=4\n", "hostfile");
//   filter_hosts(hosts, "worker-1@worker-2:0,2", "");      // all four of worker-1, two of worker-2
//   filter_hosts(hosts, "", "worker-2:1");                 // all but one
//   first_hosts(hosts, 1, 2);                              // --num_nodes 1 --num_gpus 2
//
// Hostfile   one host a line, "NAME slots=N"; empty lines and everything behind '#' are nothing.
// Filters    HOST or HOST:SLOT,SLOT, several with '@' between them. Hosts stay in the hostfile's order, slots
//            rise. One of the two, not both.
// Fails      UsageError, with file and line, or with the filter's host: a line that is none of the above, a
//            host that is there twice, no host at all; a host or a slot that the hostfile does not have, a
//            filter that is none or leaves nothing.
// Source     deepspeed/launcher/runner.py.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace lockstep::cli {

struct Host {
  std::string name;
  std::vector<int> slots;  // numbers of its GPUs, or of its ranks where there are none

  bool operator==(const Host&) const = default;
};

std::vector<Host> parse_hostfile(const std::string& text, const std::string& file);
std::vector<Host> filter_hosts(const std::vector<Host>& hosts, const std::string& include,
                               const std::string& exclude);
// The first so many hosts, each with slots 0 to `slots` - 1; nothing set: all.
std::vector<Host> first_hosts(const std::vector<Host>& hosts, std::optional<int> nodes,
                              std::optional<int> slots);
std::vector<int> slots_below(int count);

}  // namespace lockstep::cli
