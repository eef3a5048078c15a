#include "lockstep/comm/backends/tcp/backend.h"

#include <algorithm>

#include "lockstep/base/environment.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/backends/tcp/mesh.h"
#include "lockstep/comm/backends/tcp/socket_links.h"
#include "lockstep/os/cpu_share.h"

namespace lockstep {
namespace {

// How long a waiting rank may spin: a moment if every rank of this machine (of this address) has a core, else
// 0.
std::chrono::nanoseconds spin_of(Meeting& meeting, Deadline deadline) {
  constexpr std::chrono::microseconds SPIN{50};
  const std::string here = meeting.local_address();
  std::vector<CpuShare> shares;
  for (const auto& message : meeting.exchange(str(here, ' ', text_of(cpu_share())), {}, deadline)) {
    const std::size_t space = message.text.find(' ');
    if (message.text.substr(0, space) != here) continue;
    if (auto share = parse_cpu_share(message.text.substr(space + 1))) shares.push_back(std::move(*share));
  }
  const bool all_have_one = !shares.empty() && usable_cpus(shares) >= static_cast<int>(shares.size());
  return all_have_one ? SPIN : std::chrono::nanoseconds(0);
}

}  // namespace

messages::Connections connect_tcp(Meeting& meeting, const GroupOptions& options, Deadline deadline) {
  const long connections =
      meeting.rank() == 0 ? env_number("LOCKSTEP_TCP_CONNECTIONS", 1, tcp::MOST_CONNECTIONS).value_or(1) : 1;
  constexpr long DAY = 24L * 60 * 60;
  const std::chrono::milliseconds silence = std::min<std::chrono::milliseconds>(
      options.timeout, std::chrono::seconds(env_number("LOCKSTEP_HOST_TIMEOUT", 1, DAY).value_or(15)));
  auto [sockets, peers] = tcp::connect_mesh(
      meeting, {.silence = silence, .connections = static_cast<int>(connections)}, deadline);
  return {std::make_unique<tcp::SocketLinks>(std::move(sockets), spin_of(meeting, deadline)),
          std::move(peers),
          silence,
          {}};
}

}  // namespace lockstep
