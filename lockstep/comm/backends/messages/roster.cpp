#include "lockstep/comm/backends/messages/roster.h"

#include <algorithm>

#include "lockstep/base/str.h"

namespace lockstep::messages {

Roster::Roster(Membership membership)
    : membership_(std::move(membership)), left_(static_cast<std::size_t>(size())) {}

std::string_view Roster::backend_name() const {
  return node() ? membership_.carrier->hierarchical : membership_.carrier->name;
}

GroupPlace Roster::place() const {
  return {.group = membership_.name, .rank = rank(), .size = size(), .world_rank = fabric_rank(rank())};
}

void Roster::abandon() {
  // NOLINTNEXTLINE(cppcoreguidelines-owning-memory,bugprone-unhandled-exception-at-new)
  new std::shared_ptr<Running>(std::move(membership_.running));
  // NOLINTNEXTLINE(cppcoreguidelines-owning-memory,bugprone-unhandled-exception-at-new)
  new std::shared_ptr<Node>(std::move(membership_.node));
}

int Roster::group_rank(int peer) const {
  const auto& ranks = membership_.ranks;
  const auto found = std::find(ranks.begin(), ranks.end(), peer);
  return found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
}

void Roster::send_to_all(Header header, const std::string& text) const {
  header.group = id();
  for (int r = 0; r < size(); ++r) {
    if (r != rank() && !is_dead(r)) to(r).post(header, text);
  }
}

bool Roster::everybody_is_gone() const {
  for (int r = 0; r < size(); ++r) {
    if (r != rank() && !is_gone(r)) return false;
  }
  return true;
}

std::string Roster::describe(int rank) const {
  const int global = fabric_rank(rank);
  const PeerProcess& peer = fabric().lines().peer(global);
  return str("rank ", rank, " (", global == rank ? "" : str("rank ", global, " of the world, "), "pid ",
             peer.pid, " at ", peer.address, ")");
}

LostPeer Roster::describe_lost(int rank, const std::string& last_call) const {
  const bool is_dead = fabric().lines().end_of(fabric_rank(rank)) == StreamEnd::PEER;
  return {.rank = rank,
          .description = describe(rank),
          .has_left = has_left(rank),
          .unreachable = is_dead ? std::string() : fabric().lines().why_ended(fabric_rank(rank)),
          .last_call = last_call};
}

}  // namespace lockstep::messages
