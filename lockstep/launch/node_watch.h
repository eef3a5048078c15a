// The keys that the launchers of one job on several machines write into the job's store (node_group.h), and
// the process of each launcher that waits there for news of the other nodes.
//
//   key under lockstep/launch/     written by                    means
//   ranks/NODE                     each launcher, at first       its ranks, its options, its name
//   gone/NODE/NAME                 the store                     the launcher with that name is gone
//   done/NODE                      each launcher, at last        it needs the store no longer
//   start/S/failed                 the first that fails          which node, and why
//   start/S/ends/NODE, cause       job_cause.h                   how its ranks ended; the first cause
//   start/S/well/NODE              each launcher                 all its ranks have ended well
//   start/S/next                   the first that decides        RESTART: start S + 1 follows
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lockstep/launch/node_group.h"
#include "lockstep/store/tcp_store.h"

namespace lockstep {

inline constexpr const char* RESTART = "restart";
inline constexpr const char* GIVE_UP = "give up";

std::string node_key(const char* what, int node);
std::string start_key(const char* what, int start);  // of one start of the ranks
std::string start_key(const char* what, int start, int node);
// The store sets this key when the launcher with this name is gone. Another launcher that claims the same
// node has another key.
std::string gone_key(int node, std::string_view name);
std::string_view name_of_launcher(std::string_view entry);  // `entry` is the value of ranks/NODE

std::string pack_failure(const NodeFailure& failure);
NodeFailure unpack_failure(const std::string& text);

// One line that the watcher writes.
struct WatchLine {
  int start = 0;
  std::optional<NodeFailure> failure;  // empty: all other nodes have ended well
};
// Takes the first whole line off `text`.
std::optional<WatchLine> take_watch_line(std::string& text);

// Runs in a process of its own. For each start of the ranks it waits for an event that ends the start, and
// writes it to `news`. Returns the process's exit code when no further start follows.
int watch_nodes(const NodeAccess& access, TcpStore& store, int news);

}  // namespace lockstep
