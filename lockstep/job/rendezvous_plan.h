// plan_rendezvous: decides how the processes of a job find each other, from the environment and the caller's
// options, before it opens anything. Pure. `lockstep info` prints the plan.
//
//   const RendezvousPlan plan = plan_rendezvous(rendezvous_facts(options));
//
//   first row that holds                                           the ranks meet
//   a store is given                                               over this store
//   init_method file://                                            at a Unix socket whose name is in the file
//   one rank                                                       not at all
//   init_method tcp://, loopback address                           at a Unix socket named after the port,
//                                                                  which is not opened, and the job
//   init_method tcp://, another address                            over a TCP store there, served by rank 0;
//                                                                  secret needed
//   sockets inherited from `lockstep run` on one machine           over these sockets
//   the launcher says that all ranks are on this machine           at a Unix socket named after the job
//   it does not say, and MASTER_ADDR is unset or loopback          at a Unix socket named after the job
//   otherwise                                                      over a TCP store at
//                                                                  MASTER_ADDR:MASTER_PORT; secret needed
//
// The socket's name distinguishes the job from the user's other jobs on this machine
// (comm/meeting/job_identity.h). It has the launcher's name for the job and, if one launcher started all
// ranks, that launcher's process. Without a launcher it has MASTER_PORT and this process namespace. Without
// MASTER_PORT nothing distinguishes two jobs, so the plan is refused.
//
// With backend mpi, a job on several machines without a store or an init_method meets over MPI, which needs
// neither an address nor a secret.
//
// Rank 0 serves the TCP store, or our launcher does (LOCKSTEP_STORE=launcher). If torchrun itself holds
// MASTER_PORT (TORCHELASTIC_USE_AGENT_STORE=True), the store is at MASTER_PORT + 1. The secret comes from the
// launcher (LOCKSTEP_SECRET_FD) or from a file (LOCKSTEP_SECRET_FILE).
#pragma once

#include <optional>
#include <string>

#include "lockstep/base/environment.h"
#include "lockstep/comm/meeting/job_identity.h"

namespace lockstep {

inline constexpr int LARGEST_PORT = 65535;
inline constexpr int MOST_RANKS = 1 << 20;

// A tcp:// address: "tcp://host:port", "tcp://[::1]:port", each optionally with "?rank=R&world_size=N" or a
// part of it.
struct TcpUrl {
  std::string host;
  int port = 0;
  std::optional<int> rank;
  std::optional<int> world_size;
};
TcpUrl parse_tcp_url(const std::string& url);  // throws InvalidArgument that shows the format

struct RendezvousFacts {
  JobEnvironment place;
  JobIdentity identity;         // from the launcher; empty if the ranks were started by hand
  std::string machine;          // machine_identity()
  std::string user;             // user_identity()
  bool is_place_given = false;  // by the caller's options, not by the environment
  int virtual_ranks = 0;        // 0 if there are none
  bool has_store = false;       // given by the caller
  std::string init_method;      // "", "env://", "file://...", "tcp://..."
  bool has_hub = false;         // LOCKSTEP_HUB_FDS
  std::string master_addr;
  std::optional<int> master_port;
  bool has_agent_store = false;      // torchrun holds MASTER_PORT
  bool does_launcher_serve = false;  // LOCKSTEP_STORE=launcher
  std::optional<int> secret_fd;
  std::string secret_file;
};

enum class RendezvousWay { INHERITED_SOCKETS, UNIX_SOCKET, FILE, GIVEN_STORE, TCP_STORE };

struct RendezvousPlan {
  RendezvousWay way = RendezvousWay::UNIX_SOCKET;
  std::string name;  // of the meeting; for FILE the path
  std::string host;  // TCP_STORE
  int port = 0;
  bool serves = false;  // this rank serves the store
  std::string why;      // the reason, for people
};

// Throws InvalidArgument that says which variable to set (and how to make a secret).
RendezvousPlan plan_rendezvous(const RendezvousFacts& facts);

std::string describe(const RendezvousPlan& plan);  // one line

// The facts that ranks compare when they meet by this plan.
JobFingerprint fingerprint(const RendezvousFacts& facts, const RendezvousPlan& plan);

}  // namespace lockstep
