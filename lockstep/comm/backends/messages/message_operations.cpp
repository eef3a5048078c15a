#include "lockstep/comm/backends/messages/message_operations.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/str.h"
#include "lockstep/comm/backends/messages/core.h"

namespace lockstep::messages {
SendOperation::SendOperation(std::shared_ptr<Core> core, Request request, std::uint64_t number)
    : Operation(std::move(core), std::move(request)), number_(number) {}

std::string SendOperation::describe() const { return describe_message(request()); }

void SendOperation::step() {
  if (posted_) return finish();
  posted_ = true;
  Header header;
  header.group = core().roster().id();
  header.sequence = number_;
  header.set(call_of(request()));
  header.label = static_cast<std::uint32_t>(request().tag);
  const std::size_t bytes = request().count * size_of(request().dtype);
  transfers().send(request().root, header, {static_cast<const std::byte*>(request().input), bytes});
}

std::string ReceiveOperation::describe() const { return describe_message(request()); }

bool ReceiveOperation::needs(int rank) const {
  const Roster& roster = core().roster();
  const auto peers = transfers().receiving_from();
  // A rank that has left and then ended is not missed while another rank may still send.
  const bool died = roster.is_dead(rank) && !roster.has_left(rank);
  return std::any_of(peers.begin(), peers.end(), [&](int peer) {
    return peer == rank || (peer == ANY_SOURCE && (died || roster.everybody_is_gone()));
  });
}

int ReceiveOperation::source_rank() const {
  core().roster().refuse_fork("a look at an operation");
  const Session session(core().roster().fabric());
  return source_;
}

void ReceiveOperation::step() {
  if (posted_) {
    source_ = transfers().source();
    core().recorder().set_peer(ticket(), source_);
    return finish();
  }
  posted_ = true;
  const std::size_t bytes = request().count * size_of(request().dtype);
  transfers().receive({nullptr,
                       request().root,
                       0,
                       static_cast<std::uint32_t>(request().tag),
                       {static_cast<std::byte*>(request().output), bytes}});
}

}  // namespace lockstep::messages
