#include "lockstep/job/rendezvous_plan.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/os/tcp_socket.h"

namespace lockstep {
namespace {

constexpr std::string_view FILE_SCHEME = "file://";
constexpr std::string_view TCP_SCHEME = "tcp://";

[[noreturn]] void refuse_url(const std::string& url, const char* what) {
  throw InvalidArgument(
      str("init_process_group: init_method \"", printable(url), "\" ", what,
          "; it should look like tcp://10.0.0.1:29500?rank=0&world_size=2, where rank and world_size may "
          "also be given as options"));
}

std::optional<int> number(std::string_view text, int minimum, int maximum) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < minimum || value > maximum)
    return std::nullopt;
  return value;
}

void take_query(const std::string& url, std::string_view query, TcpUrl& result) {
  while (!query.empty()) {
    const std::string_view item = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(item.size() + 1, query.size()));
    const std::size_t equals = std::min(item.find('='), item.size());
    const std::string_view name = item.substr(0, equals);
    const auto value = equals == item.size() ? std::nullopt : number(item.substr(equals + 1), 0, MOST_RANKS);
    if (!value) refuse_url(url, "has a value after the ? that is not a number");
    if (name == "rank") {
      result.rank = value;
    } else if (name == "world_size") {
      result.world_size = value;
    } else {
      refuse_url(url, "has a name after the ? other than rank and world_size");
    }
  }
}

// Checks that a secret is available, before any rank waits for another.
void require_secret(const RendezvousFacts& facts) {
  if (facts.secret_fd || !facts.secret_file.empty()) return;
  throw InvalidArgument(
      "init_process_group: ranks on several machines need a secret that only they know. Make one and copy it "
      "to the same "
      "place on every machine:\n"
      "  (umask 077; head -c 32 /dev/urandom > ~/.lockstep-secret)\n"
      "then set LOCKSTEP_SECRET_FILE=~/.lockstep-secret for every rank, or start them with lockstep run "
      "--secret-file");
}

// The environment and the program's options count alike: in both cases no launcher started the ranks.
std::string source_of(const RendezvousFacts& facts) {
  const Launcher source = facts.place.source;
  const bool is_by_hand = source == Launcher::BY_HAND || source == Launcher::OPTIONS;
  return is_by_hand ? "by hand" : std::string(name_of(source));
}

// The launcher's process, if it started all ranks; else empty. A job of several machines has several
// launchers, even if they run on one machine.
std::string launcher_of_all(const RendezvousFacts& facts) {
  const JobEnvironment& place = facts.place;
  const bool has_some = place.local_world_size != JobEnvironment::UNKNOWN && !place.is_single_node();
  return has_some ? "" : facts.identity.launcher;
}

// The name that distinguishes this job from the user's other jobs on this machine. `port` is a number that
// the user chose.
std::string job_here(const RendezvousFacts& facts, std::optional<int> port) {
  const std::string launcher = launcher_of_all(facts);
  std::string name = source_of(facts);
  for (const std::string& part : {facts.identity.job, launcher})
    if (!part.empty()) name += "/" + part;
  if (!facts.identity.job.empty() || !launcher.empty()) return name;
  if (!port && facts.place.world_size > 1) {
    const bool is_given = facts.is_place_given || facts.place.source == Launcher::BY_HAND;
    throw InvalidArgument(
        str("init_process_group, rank ", facts.place.rank, " of ", facts.place.world_size, ": ",
            is_given ? "rank and world size are given by hand"
                     : str(name_of(facts.place.source), " has started this rank"),
            ", and nothing distinguishes this job from others of the same user on this machine. "
            "Set MASTER_PORT: the same number, such "
            "as 29500, for all ranks of this job, and another one for each job that runs "
            "at the same time. On one machine "
            "it is only a name"));
  }
  return str(name, "/port ", port.value_or(0), '/', facts.machine);
}

RendezvousPlan over_tcp(const RendezvousFacts& facts, const std::string& host, int port, bool rank_0_serves,
                        std::string why) {
  require_secret(facts);
  RendezvousPlan plan;
  plan.way = RendezvousWay::TCP_STORE;
  plan.name = "world";  // the store belongs to this job only, so the job need not be in the name
  // Our launcher serves one store for all starts of the ranks, so each start needs names of its own.
  if (facts.does_launcher_serve && facts.place.restarts > 0)
    plan.name += str(" of restart ", facts.place.restarts);
  plan.host = host;
  plan.port = port;
  plan.serves = rank_0_serves && facts.place.rank == 0;
  plan.why = std::move(why);
  return plan;
}

RendezvousPlan at_unix_socket(std::string name, std::string why) {
  RendezvousPlan plan;
  plan.way = RendezvousWay::UNIX_SOCKET;
  plan.name = std::move(name);
  plan.why = std::move(why);
  return plan;
}

RendezvousPlan by_url(const RendezvousFacts& facts) {
  const TcpUrl url = parse_tcp_url(facts.init_method);
  if (is_loopback(url.host)) {
    return at_unix_socket(str("tcp/", url.port, '/', job_here(facts, url.port)),
                          "the address of init_method is this machine's own");
  }
  return over_tcp(facts, url.host, url.port, true, "init_method names an address of a network");
}

RendezvousPlan by_environment(const RendezvousFacts& facts) {
  const JobEnvironment& place = facts.place;
  if (facts.has_hub && !facts.is_place_given) {
    RendezvousPlan plan;
    plan.way = RendezvousWay::INHERITED_SOCKETS;
    plan.why = "`lockstep run` started all ranks on this machine";
    return plan;
  }
  if (place.is_single_node()) {
    return at_unix_socket(job_here(facts, facts.master_port),
                          "the launcher says that all ranks are on this machine");
  }
  const bool is_size_known = place.local_world_size != JobEnvironment::UNKNOWN;
  if (!is_size_known && (facts.master_addr.empty() || is_loopback(facts.master_addr))) {
    return at_unix_socket(job_here(facts, facts.master_port), facts.master_addr.empty()
                                                                  ? "MASTER_ADDR is not set"
                                                                  : "MASTER_ADDR is this machine's own");
  }
  const std::string why = is_size_known ? str("only ", place.local_world_size, " of ", place.world_size,
                                              " ranks are on this machine")
                                        : std::string("MASTER_ADDR is an address of a network");
  if (facts.master_addr.empty() || !facts.master_port) {
    throw InvalidArgument(str(
        "init_process_group: ", why, ", but ", facts.master_addr.empty() ? "MASTER_ADDR" : "MASTER_PORT",
        " is not set. Set MASTER_ADDR to the address of rank 0's machine and MASTER_PORT to a port that is "
        "free there, for every rank (Slurm: MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | "
        "head -n 1))"));
  }
  const int port = *facts.master_port + (facts.has_agent_store ? 1 : 0);
  if (port > LARGEST_PORT)
    throw InvalidArgument("init_process_group: torchrun holds MASTER_PORT 65535, and there is no next port");
  return over_tcp(
      facts, facts.master_addr, port, !facts.does_launcher_serve,
      facts.has_agent_store ? why + "; torchrun itself holds MASTER_PORT, so the next one is used" : why);
}

}  // namespace

TcpUrl parse_tcp_url(const std::string& url) {
  if (!url.starts_with(TCP_SCHEME)) refuse_url(url, "does not start with tcp://");
  std::string_view rest = std::string_view(url).substr(TCP_SCHEME.size());
  TcpUrl result;
  const std::size_t query = rest.find('?');
  if (query != std::string_view::npos) {
    take_query(url, rest.substr(query + 1), result);
    rest = rest.substr(0, query);
  }
  if (rest.ends_with('/')) rest.remove_suffix(1);
  const std::size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos || colon == 0) refuse_url(url, "has no host or no port");
  const auto port = number(rest.substr(colon + 1), 1, LARGEST_PORT);
  if (!port) refuse_url(url, "has no port from 1 to 65535");
  result.port = *port;
  std::string_view host = rest.substr(0, colon);
  const bool in_brackets = host.starts_with('[') && host.ends_with(']');
  if (in_brackets) host = host.substr(1, host.size() - 2);
  if (host.empty() || (!in_brackets && host.find(':') != std::string_view::npos) ||
      host.find('/') != std::string_view::npos) {
    refuse_url(url, "has no valid host (write an IPv6 address in brackets)");
  }
  result.host = std::string(host);
  return result;
}

RendezvousPlan plan_rendezvous(const RendezvousFacts& facts) {
  const std::string& method = facts.init_method;
  if (facts.has_store) {
    if (!method.empty()) throw InvalidArgument("init_process_group: give init_method or a store, not both");
    RendezvousPlan plan;
    plan.way = RendezvousWay::GIVEN_STORE;
    plan.name = str(facts.place.job_id, '/', facts.place.world_size);
    plan.why = "the program gave one";
    return plan;
  }
  if (method.starts_with(FILE_SCHEME)) {
    if (!facts.is_place_given) throw InvalidArgument("init_process_group: file:// needs rank and world_size");
    RendezvousPlan plan;
    plan.way = RendezvousWay::FILE;
    plan.name = method.substr(FILE_SCHEME.size());
    plan.why = "init_method names a file";
    return plan;
  }
  const bool is_by_url = method.starts_with(TCP_SCHEME);
  const bool is_by_environment = method.empty() || method == "env://";
  if ((is_by_url || is_by_environment) && facts.place.world_size == 1) {
    return at_unix_socket(job_here(facts, facts.master_port), "a job of one rank");
  }
  if (is_by_url) return by_url(facts);
  if (is_by_environment) return by_environment(facts);
  throw InvalidArgument("init_process_group: init_method \"" + printable(method) +
                        "\" is not supported; use env://, tcp://address:port or file:///absolute/path");
}

JobFingerprint fingerprint(const RendezvousFacts& facts, const RendezvousPlan& plan) {
  JobFingerprint mine;
  mine.size = facts.place.world_size;
  // Only ranks of one job inherit these sockets.
  if (plan.way == RendezvousWay::INHERITED_SOCKETS) return mine;
  mine.source = source_of(facts);
  mine.job = facts.identity.job;
  if (plan.way == RendezvousWay::UNIX_SOCKET || plan.way == RendezvousWay::FILE) {
    mine.launcher = launcher_of_all(facts);
    mine.user = facts.user;
  }
  return mine;
}

std::string describe(const RendezvousPlan& plan) {
  switch (plan.way) {
    case RendezvousWay::INHERITED_SOCKETS: return "sockets inherited from the launcher: " + plan.why;
    case RendezvousWay::UNIX_SOCKET:
      return str("a Unix socket named after ", printable(plan.name), ": ", plan.why);
    case RendezvousWay::FILE: return str("the file ", printable(plan.name), ": ", plan.why);
    case RendezvousWay::GIVEN_STORE: return "a store: " + plan.why;
    case RendezvousWay::TCP_STORE: break;
  }
  return str("a TCP store at ", text({printable(plan.host), plan.port}),
             plan.serves ? ", served by this rank" : "", ": ", plan.why);
}

}  // namespace lockstep
