#include "lockstep/launch/node_watch.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/os/pipe.h"

namespace lockstep {
namespace {

// Writes one line: the number of the start and the failure. Without a failure, all other nodes have ended
// well.
void tell(int news, int start, const std::optional<NodeFailure>& failure) {
  std::string line = str(start, ' ', failure ? pack_failure(*failure) : "");
  std::replace(line.begin(), line.end(), '\n', ' ');
  write_available(news, line + "\n");
}

// A launcher only knows this much if its connection to the store is over.
NodeFailure lost_store(const NodeAccess& access) {
  return {0, 1,
          access.node == 0
              ? "the process that serves the job's store has ended"
              : "the launcher of node 0, or its process that serves the job's store, has ended or cannot be "
                "reached"};
}

struct OtherNode {
  int node;
  std::string gone;  // the key that the store sets when its launcher is gone
};

enum class AfterStart { RESTARTED, OVER };

// Waits for an event that ends one start of the ranks, reports it to the supervisor, and waits for the
// launchers' decision.
AfterStart watch_start(int me, TcpStore& store, int news, int start, std::vector<OtherNode> running) {
  while (true) {
    // `keys` has the failure first, then the "well" keys of the running nodes, then their "gone" keys. The
    // index of the first key that is set tells what happened, and to which node.
    std::vector<std::string> keys = {start_key("failed", start)};
    for (const OtherNode& other : running) keys.push_back(start_key("well", start, other.node));
    for (const OtherNode& other : running) keys.push_back(other.gone);
    const auto entry = store.first_of(keys, Deadline::never());
    if (entry->index == 0) {
      const NodeFailure failure = unpack_failure(entry->value);
      if (failure.node != me) tell(news, start, failure);
      break;
    }
    const std::size_t at = (entry->index - 1) % running.size();
    if (entry->index > running.size()) {
      const int node = running[at].node;
      tell(news, start, NodeFailure{node, 1, str("the launcher of node ", node, " is gone")});
      return AfterStart::OVER;
    }
    running.erase(running.begin() + static_cast<std::ptrdiff_t>(at));
    if (running.empty()) tell(news, start, std::nullopt);
  }
  const auto decision = store.first_of({start_key("next", start)}, Deadline::never());
  return decision->value == RESTART ? AfterStart::RESTARTED : AfterStart::OVER;
}

}  // namespace

int watch_nodes(const NodeAccess& access, TcpStore& store, int news) {
  int start = 0;
  try {
    std::vector<OtherNode> others;
    for (int node = 0; node < access.nodes; ++node) {
      if (node != access.node)
        others.push_back({node, gone_key(node, name_of_launcher(store.get(node_key("ranks", node))))});
    }
    while (watch_start(access.node, store, news, start, others) == AfterStart::RESTARTED) ++start;
  } catch (const Error&) {
    tell(news, start, lost_store(access));
  }
  return 0;
}

std::string node_key(const char* what, int node) { return str("lockstep/launch/", what, '/', node); }

std::string start_key(const char* what, int start) { return str("lockstep/launch/start/", start, '/', what); }
std::string start_key(const char* what, int start, int node) {
  return str(start_key(what, start), '/', node);
}

std::string gone_key(int node, std::string_view name) { return str(node_key("gone", node), '/', name); }

std::string_view name_of_launcher(std::string_view entry) { return entry.substr(entry.rfind(' ') + 1); }

std::string pack_failure(const NodeFailure& failure) {
  return str(failure.node, ' ', failure.exit_code, ' ', failure.signal, ' ', failure.what);
}

NodeFailure unpack_failure(const std::string& text) {
  NodeFailure failure;
  const char* const end = text.data() + text.size();
  const char* at = text.data();
  for (int* const field : {&failure.node, &failure.exit_code, &failure.signal}) {
    const auto read = std::from_chars(at, end, *field);
    if (read.ec != std::errc() || read.ptr == end)
      return {0, 1, "its failure report in the store is malformed"};
    at = read.ptr + 1;
  }
  failure.what.assign(at, end);
  return failure;
}

std::optional<WatchLine> take_watch_line(std::string& text) {
  const std::size_t end = text.find('\n');
  if (end == std::string::npos) return std::nullopt;
  const std::string line = text.substr(0, end);
  text.erase(0, end + 1);
  WatchLine taken;
  const char* const line_end = line.data() + line.size();
  const char* const rest = std::from_chars(line.data(), line_end, taken.start).ptr;
  if (line_end - rest > 1) taken.failure = unpack_failure(std::string(rest + 1, line_end));
  return taken;
}

}  // namespace lockstep
