#include "lockstep/comm/backends/tcp_backend.h"

#include <numeric>

#include "lockstep/comm/backends/socket_links.h"
#include "lockstep/comm/backends/tcp_group.h"
#include "lockstep/comm/backends/tcp_mesh.h"

namespace lockstep {

ProcessGroup make_tcp_group(Meeting& meeting, const std::string& group_name, const GroupOptions& options,
                            Deadline deadline) {
  const auto trace = TraceMemory::create(meeting.rank(), meeting.size());
  trace->share(meeting, deadline);
  return make_tcp_group(meeting, group_name, options, deadline, nullptr, trace);
}

ProcessGroup make_tcp_group(Meeting& meeting, const std::string& group_name, const GroupOptions& options,
                            Deadline deadline, std::shared_ptr<tcp::Node> node,
                            std::shared_ptr<TraceMemory> trace) {
  std::vector<int> ranks(static_cast<std::size_t>(meeting.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  auto [sockets, peers] = tcp::connect_mesh(meeting, options.timeout, deadline);
  auto running = std::make_shared<tcp::Running>(std::make_unique<tcp::SocketLinks>(std::move(sockets)),
                                                std::move(peers), meeting.rank());
  const std::string_view kind = node ? "hierarchical" : "tcp";
  auto world = tcp::Group::make({running, 0, std::move(ranks), meeting.rank(), group_name, kind, options,
                                 std::move(trace), std::move(node)});
  running->start();
  return ProcessGroup(std::move(world));
}

}  // namespace lockstep
