#include "lockstep/launch/node_group.h"

#include <charconv>
#include <csignal>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/number_list.h"
#include "lockstep/base/str.h"
#include "lockstep/base/wait_reminder.h"
#include "lockstep/launch/node_watch.h"
#include "lockstep/os/child_process.h"
#include "lockstep/os/open_files.h"
#include "lockstep/os/pipe.h"
#include "lockstep/store/tcp_store_server.h"

namespace lockstep {
namespace {

// For a store that is reachable: its machine may be stopped for a while.
constexpr std::chrono::seconds PATIENCE{30};
constexpr std::chrono::seconds LAST_ANSWER{2};  // of the store, while ranks must be stopped

std::unique_ptr<TcpStore> connect_to(const NodeAccess& access, Deadline deadline,
                                     const std::string& farewell) {
  try {
    return std::make_unique<TcpStore>(TcpStoreOptions{.host = access.host,
                                                      .port = access.port,
                                                      .secret = access.secret,
                                                      .deadline = deadline,
                                                      .timeout = PATIENCE,
                                                      .farewell = farewell});
  } catch (const InvalidArgument& error) {  // a name that is none
    throw InvalidArgument(str("--master-addr: ", error.what()));
  }
}

// A launcher's value under "ranks". Its name follows.
struct NodeEntry {
  int ranks = 0;
  int nodes = 0;
  int max_restarts = 0;
};

NodeEntry unpack_entry(const std::string& text) {
  NodeEntry entry;
  const char* const end = text.data() + text.size();
  const char* at = text.data();
  for (int* const field : {&entry.ranks, &entry.nodes, &entry.max_restarts}) {
    at = std::from_chars(at, end, *field).ptr;
    if (at != end) ++at;
  }
  return entry;
}

void require_same(int node, const char* option, int theirs, int mine) {
  if (theirs != mine)
    throw InvalidArgument(
        str("node ", node, " was started with ", option, " ", theirs, ", this one with ", option, " ", mine));
}

// The ends of the connections to the parent that the process that serves the store keeps.
struct ParentEnds {
  Fd own;
  Fd watcher;
};

// Serves the store until all nodes are done or gone, or until this process is killed.
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
  // The adopted connection has a farewell key, so the store also notices the end of node 0's own launcher.
  server->adopt(std::move(parent.own), gone_key(access.node, job_id));
  server->adopt(std::move(parent.watcher));
  write_available(ready, "0");
  try {
    const auto store = server->open();
    for (int node = 0; node < access.nodes; ++node) {
      const auto entry = store->first_of({node_key("ranks", node)}, Deadline::never());
      store->first_of({node_key("done", node), gone_key(node, name_of_launcher(entry->value))},
                      Deadline::never());
    }
  } catch (const Error& error) {
    write_available(STANDARD_ERROR,
                    str("lockstep: the process that serves the job's store ends: ", error.what(), "\n"));
    return 1;
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

Nodes::Joined Nodes::meet(const Wish& wish, Deadline deadline) {
  Joined joined;
  const Awaited awaited([&] {
    return str("the launcher of node 0, which serves the store, to answer at ",
               text({access_.host, access_.port}));
  });
  try {
    joined.stores = connect(deadline);
    meet_with(*joined.stores.own, wish, deadline, joined);
  } catch (const StoreLost&) {
    if (access_.node == 0) throw_server_ended();
    throw;
  }
  return joined;
}

void Nodes::meet_with(TcpStore& store, const Wish& wish, Deadline deadline, Joined& joined) const {
  const std::string mine = str(wish.ranks, ' ', access_.nodes, ' ', wish.max_restarts, ' ', job_id_);
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
    const NodeEntry other = unpack_entry(entry->value);
    require_same(node, "--nnodes", other.nodes, access_.nodes);
    require_same(node, "--max-restarts", other.max_restarts, wish.max_restarts);
    if (node < access_.node) joined.first_rank += other.ranks;
    joined.world_size += other.ranks;
    if (node == 0) joined.job_id = std::string(name_of_launcher(entry->value));
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
    store_.reset();  // this process's copy: the connection must end with the parent
    return watch_nodes(access_, *stores.watcher, pipe.write.get());
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
  if (read_available(news_.get(), unread_) == ReadResult::END) news_.reset();
  return take_news();
}

std::optional<NodeFailure> NodeLink::take_news() {
  while (const auto line = take_watch_line(unread_)) {
    if (line->start != start_) continue;  // of an earlier start
    if (line->failure) return line->failure;
    others_ended_well_ = true;
  }
  return std::nullopt;
}

NodeFailure NodeLink::report(const NodeFailure& mine) {
  store_->set_timeout(LAST_ANSWER);
  try {
    return unpack_failure(store_->compare_set(start_key("failed", start_), "", pack_failure(mine)));
  } catch (const Error&) {
    return mine;  // no node can be told
  }
}

void NodeLink::publish(const std::string& ends) {
  store_->set_timeout(LAST_ANSWER);
  try {
    store_->set(start_key("ends", start_, access_.node), ends);
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): no node can be told
  }
}

std::vector<Published> NodeLink::published(Deadline deadline) {
  std::vector<Published> all(static_cast<std::size_t>(access_.nodes));
  try {
    for (int node = 0; node < access_.nodes; ++node) {
      const auto entry = store_->find(node_key("ranks", node));
      if (!entry) continue;
      const auto ends = store_->first_of(
          {start_key("ends", start_, node), gone_key(node, name_of_launcher(*entry))}, deadline);
      if (!ends) continue;
      Published& its = all[static_cast<std::size_t>(node)];
      its.is_gone = ends->index == 1;
      if (!its.is_gone) its.ends = ends->value;
    }
  } catch (const Error&) {
    all.front().is_gone = !all.front().ends;
  }
  return all;
}

NodeFailure NodeLink::agree(const NodeFailure& mine) {
  try {
    return unpack_failure(store_->compare_set(start_key("cause", start_), "", pack_failure(mine)));
  } catch (const Error&) {
    return mine;
  }
}

std::optional<NodeFailure> NodeLink::agreed(Deadline deadline) {
  try {
    const auto entry = store_->first_of({start_key("cause", start_)}, deadline);
    return entry ? std::optional(unpack_failure(entry->value)) : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

void NodeLink::note_ended_well() {
  try {
    store_->set(start_key("well", start_, access_.node), "");
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the watcher reports that the store is gone
  }
}

NextStart NodeLink::agree_on_restart(bool wished) {
  store_->set_timeout(LAST_ANSWER);
  try {
    const std::string said = store_->compare_set(start_key("next", start_), "", wished ? RESTART : GIVE_UP);
    if (!wished || said != RESTART) return NextStart::GIVEN_UP;
  } catch (const Error&) {
    return NextStart::UNDECIDED;
  }
  store_->set_timeout(PATIENCE);
  ++start_;
  others_ended_well_ = false;
  return NextStart::FOLLOWS;
}

void NodeLink::finish() {
  note_ended_well();
  try {
    store_->set(node_key("done", access_.node), "");
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): no node can be told
  }
}

}  // namespace lockstep
