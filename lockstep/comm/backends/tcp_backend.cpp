#include "lockstep/comm/backends/tcp_backend.h"

#include <numeric>

#include "lockstep/comm/backends/tcp_group.h"
#include "lockstep/comm/backends/tcp_mesh.h"

namespace lockstep {

ProcessGroup make_tcp_group(Meeting& meeting, const std::string& group_name, const GroupOptions& options,
                            Deadline deadline) {
  std::vector<int> ranks(static_cast<std::size_t>(meeting.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  auto running =
      std::make_shared<tcp::Running>(tcp::connect_mesh(meeting, options.timeout, deadline), meeting.rank());
  auto world = tcp::Group::make({running, 0, std::move(ranks), meeting.rank(), group_name, options});
  running->start();
  return ProcessGroup(std::move(world));
}

}  // namespace lockstep
