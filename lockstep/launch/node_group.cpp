#include "lockstep/launch/node_group.h"

#include <charconv>
#include <csignal>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/number_list.h"
#include "lockstep/base/str.h"
#include "lockstep/base/wait_reminder.h"
#include "lockstep/os/child_process.h"
#include "lockstep/os/open_files.h"
#include "lockstep/os/pipe.h"
#include "lockstep/store/tcp_store_server.h"

namespace lockstep {
namespace {

constexpr const char* FAILED = "lockstep/launch/failed";
constexpr const char* CAUSE = "lockstep/launch/cause";
constexpr std::chrono::seconds PATIENCE{
    30};  // with a store that is there: its machine may stand still for a while
constexpr std::chrono::seconds LAST_ANSWER{2};  // of the store, while ranks are to be stopped

std::string node_key(const char* what, int node) { return str("lockstep/launch/", what, '/', node); }

// Set when the launcher with this entry under "ranks" is gone; another one that claims the same node sets
// another key.
std::string gone_key(int node, std::string_view id) { return str(node_key("gone", node), '/', id); }

std::string_view id_of(std::string_view entry) { return entry.substr(entry.rfind(' ') + 1); }

std::unique_ptr<TcpStore> connect_to(const NodeAccess& access, Deadline deadline,
                                     const std::string& farewell) {
  return std::make_unique<TcpStore>(TcpStoreOptions{.host = access.host,
                                                    .port = access.port,
                                                    .secret = access.secret,
                                                    .deadline = deadline,
                                                    .timeout = PATIENCE,
                                                    .farewell = farewell});
}

std::string pack_failure(const NodeFailure& failure) {
  return str(failure.node, ' ', failure.exit_code, ' ', failure.what);
}

NodeFailure unpack_failure(const std::string& text) {
  NodeFailure failure;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, failure.node);
  if (first.ec != std::errc() || first.ptr == end) return {0, 1, "the store does not say what"};
  const auto second = std::from_chars(first.ptr + 1, end, failure.exit_code);
  if (second.ec == std::errc() && second.ptr != end) failure.what.assign(second.ptr + 1, end);
  return failure;
}

// The ends that the process which serves the store keeps, of connections to its parent.
struct ParentEnds {
  Fd own;
  Fd watcher;
};

// Serves the store until all nodes are done or gone, or this process is killed.
int serve(const NodeAccess& access, const std::string& job_id, ParentEnds parent, int ready) {
  set_log_sink(
      [](LogLevel, const std::string& line) { write_available(STANDARD_ERROR, "lockstep: " + line + "\n"); });
  raise_open_files();
  std::unique_ptr<TcpStoreServer> server;
  try {
    server = std::make_unique<TcpStoreServer>(TcpStoreServerOptions{
        .secret = access.secret, .address = address_to_listen_at(access.host), .port = access.port});
  } catch (const SystemError& error) {
    write_available(ready, std::to_string(error.error_number()));
    return 1;
  }
  server->adopt(std::move(parent.own), gone_key(access.node, job_id));
  server->adopt(std::move(parent.watcher));
  write_available(ready, "0");
  try {
    const auto store = server->open();
    for (int node = 0; node < access.nodes; ++node) {
      const auto entry = store->first_of({node_key("ranks", node)}, Deadline::never());
      store->first_of({node_key("done", node), gone_key(node, id_of(entry->value))}, Deadline::never());
    }
  } catch (const Error& error) {
    write_available(STANDARD_ERROR,
                    str("lockstep: the process that serves the job's store ends: ", error.what(), "\n"));
    return 1;
  }
  return 0;
}

// What a launcher can know when its connection to the store is over.
NodeFailure lost_store(const NodeAccess& access) {
  return {0, 1,
          access.node == 0
              ? "the process that serves the job's store has ended"
              : "the launcher of node 0, or its process that serves the job's store, has ended or cannot be "
                "reached"};
}

// Waits for bad news from another node or of the store; an end without any is told by the end of the pipe.
int watch(const NodeAccess& access, TcpStore& store, int news) {
  try {
    struct Other {
      int node;
      std::string gone;
    };
    std::vector<Other> others;
    for (int node = 0; node < access.nodes; ++node) {
      if (node != access.node)
        others.push_back({node, gone_key(node, id_of(store.get(node_key("ranks", node))))});
    }
    while (true) {
      std::vector<std::string> keys = {FAILED};
      for (const Other& other : others) keys.push_back(node_key("done", other.node));
      for (const Other& other : others) keys.push_back(other.gone);
      const auto entry = store.first_of(keys, Deadline::never());
      if (entry->index == 0) {
        if (unpack_failure(entry->value).node != access.node) write_available(news, entry->value);
        return 0;
      }
      const std::size_t at = (entry->index - 1) % others.size();
      if (entry->index > others.size()) {
        const int node = others[at].node;
        write_available(news, pack_failure({node, 1, str("the launcher of node ", node, " is gone")}));
        return 0;
      }
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(at));
    }
  } catch (const Error&) {
    write_available(news, pack_failure(lost_store(access)));
  }
  return 0;
}

}  // namespace

Nodes::Nodes(NodeAccess access, std::string job_id) : access_(std::move(access)), job_id_(std::move(job_id)) {
  if (access_.node == 0) start_server();
}

void Nodes::start_server() {
  Pipe ready = make_pipe();
  SocketPair own = make_stream_socket_pair();
  SocketPair watcher = make_stream_socket_pair();
  server_ = fork_child([&] {
    leave_process_group();
    die_with_parent();
    name_process("lockstep-store");
    ready.read.reset();
    own.second.reset();
    watcher.second.reset();
    return serve(access_, job_id_, {std::move(own.first), std::move(watcher.first)}, ready.write.get());
  });
  ready.write.reset();
  const TcpAddress address{access_.host, access_.port};
  const LocalStoreOptions options{.timeout = PATIENCE};
  to_server_ = {std::make_unique<TcpStore>(std::move(own.second), address, options),
                std::make_unique<TcpStore>(std::move(watcher.second), address, options)};
  std::string said;
  while (read_available(ready.read.get(), said) == ReadResult::NOTHING_NOW) {
  }
  int error = 0;
  const auto [end, problem] = std::from_chars(said.data(), said.data() + said.size(), error);
  if (problem != std::errc()) throw_server_ended();
  if (error == 0) return;
  throw SystemError(str("cannot serve the store of the job at ", text(address),
                        "; --master-addr must be an address of node 0 and --master-port free there"),
                    error);
}

void Nodes::throw_server_ended() const {
  throw StoreError(str("node 0: the process that serves the job's store at ",
                       text({access_.host, access_.port}),
                       " ended too early: ", describe(wait_exit(server_))));
}

NodeStores Nodes::connect(Deadline deadline) {
  if (access_.node == 0) return std::move(to_server_);
  NodeStores stores;
  stores.own = connect_to(access_, deadline, gone_key(access_.node, job_id_));
  stores.watcher = connect_to(access_, deadline, "");
  return stores;
}

Nodes::Joined Nodes::meet(int ranks_here, Deadline deadline) {
  Joined joined;
  const Awaited awaited([&] {
    return str("the launcher of node 0 to answer, which serves the store at ",
               text({access_.host, access_.port}));
  });
  try {
    joined.stores = connect(deadline);
    meet_with(*joined.stores.own, ranks_here, deadline, joined);
  } catch (const StoreLost&) {
    if (access_.node == 0) throw_server_ended();
    throw;
  }
  return joined;
}

void Nodes::meet_with(TcpStore& store, int ranks_here, Deadline deadline, Joined& joined) const {
  const std::string mine = str(ranks_here, ' ', access_.nodes, ' ', job_id_);
  if (store.compare_set(node_key("ranks", access_.node), "", mine) != mine) {
    throw InvalidArgument(str("there are two launchers with --node-rank ", access_.node));
  }
  std::vector<int> missing;
  for (int node = 0; node < access_.nodes; ++node) {
    const Awaited awaited([&] { return str("the launcher of node ", node); });
    const auto entry = store.first_of({node_key("ranks", node)}, deadline);
    if (!entry) {
      missing.push_back(node);
      continue;
    }
    int ranks = 0;
    int nodes = 0;
    const char* const end = entry->value.data() + entry->value.size();
    const auto first = std::from_chars(entry->value.data(), end, ranks);
    const auto second = first.ptr == end ? first : std::from_chars(first.ptr + 1, end, nodes);
    if (nodes != access_.nodes) {
      throw InvalidArgument(str("node ", node, " was started with --nnodes ", nodes,
                                ", this one with --nnodes ", access_.nodes));
    }
    if (node < access_.node) joined.first_rank += ranks;
    joined.world_size += ranks;
    if (node == 0) joined.job_id.assign(second.ptr + 1, end);
  }
  if (!missing.empty()) throw Timeout(str("the launcher of node(s) ", number_list(missing), " did not come"));
}

NodeLink::NodeLink(NodeAccess access, NodeStores stores)
    : access_(std::move(access)), store_(std::move(stores.own)) {
  Pipe pipe = make_pipe();
  watcher_ = fork_child([&] {
    die_with_parent();
    name_process("lockstep-watch");
    pipe.read.reset();
    store_.reset();  // this process's copy: the connection is to end with its parent
    return watch(access_, *stores.watcher, pipe.write.get());
  });
  news_ = std::move(pipe.read);
  set_nonblocking(news_.get());
}

NodeLink::~NodeLink() {
  signal_process(watcher_, SIGKILL);
  wait_exit(watcher_);
}

std::optional<NodeFailure> NodeLink::news(const PollSet& wait) {
  if (!news_.valid() || !wait.is_ready(news_.get())) return std::nullopt;
  std::string said;
  const ReadResult result = read_available(news_.get(), said);
  if (result == ReadResult::NOTHING_NOW) return std::nullopt;
  news_.reset();
  if (said.empty()) return std::nullopt;
  return unpack_failure(said);
}

NodeFailure NodeLink::report(const NodeFailure& mine) {
  store_->set_timeout(LAST_ANSWER);
  try {
    return unpack_failure(store_->compare_set(FAILED, "", pack_failure(mine)));
  } catch (const Error&) {
    return mine;  // nobody is there to be told
  }
}

void NodeLink::publish(const std::string& ends) {
  store_->set_timeout(LAST_ANSWER);
  try {
    store_->set(node_key("ends", access_.node), ends);
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): nobody is there to be told
  }
}

std::vector<std::optional<std::string>> NodeLink::published(Deadline deadline) {
  std::vector<std::optional<std::string>> all(static_cast<std::size_t>(access_.nodes));
  try {
    for (int node = 0; node < access_.nodes; ++node) {
      const auto entry = store_->find(node_key("ranks", node));
      if (!entry) continue;
      const auto ends = store_->first_of({node_key("ends", node), gone_key(node, id_of(*entry))}, deadline);
      if (ends && ends->index == 0) all[static_cast<std::size_t>(node)] = ends->value;
    }
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): node 0 is gone, and with it all the others' words
  }
  return all;
}

NodeFailure NodeLink::agree(const NodeFailure& mine) {
  try {
    return unpack_failure(store_->compare_set(CAUSE, "", pack_failure(mine)));
  } catch (const Error&) {
    return mine;
  }
}

std::optional<NodeFailure> NodeLink::agreed(Deadline deadline) {
  try {
    const auto entry = store_->first_of({CAUSE}, deadline);
    return entry ? std::optional(unpack_failure(entry->value)) : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

void NodeLink::finish() {
  try {
    store_->set(node_key("done", access_.node), "");
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): nobody is there to be told
  }
}

}  // namespace lockstep
