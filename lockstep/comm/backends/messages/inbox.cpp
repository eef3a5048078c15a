#include "lockstep/comm/backends/messages/inbox.h"

#include <algorithm>

namespace lockstep::messages {
namespace {

bool wants(const Receive& receive, int source, const Header& header) {
  return receive.label == header.label && (receive.peer == source || receive.peer == ANY_SOURCE);
}

}  // namespace

void Inbox::post(const std::shared_ptr<Receive>& receive, bool collective) {
  if (!collective) {
    posted_messages_.push_back(receive);
  } else {
    posted_[{receive->peer, receive->sequence, receive->label}] = receive;
  }
}

void Inbox::keep(Arrived message) {
  if (message.header.is_message_of_send()) {
    arrived_messages_.push_back(std::move(message));
  } else {
    const Key key = key_of(message.source, message.header);
    arrived_.insert_or_assign(key, std::move(message));
  }
}

std::shared_ptr<Receive> Inbox::take_receive(int source, const Header& header) {
  if (!header.is_message_of_send()) {
    auto node = posted_.extract(key_of(source, header));
    return node.empty() ? nullptr : node.mapped();
  }
  const auto found = std::find_if(posted_messages_.begin(), posted_messages_.end(),
                                  [&](const auto& receive) { return wants(*receive, source, header); });
  if (found == posted_messages_.end()) return nullptr;
  std::shared_ptr<Receive> receive = *found;
  posted_messages_.erase(found);
  return receive;
}

std::optional<Inbox::Arrived> Inbox::take_message(const Receive& receive, bool collective) {
  if (collective) {
    auto node = arrived_.extract({receive.peer, receive.sequence, receive.label});
    if (node.empty()) return std::nullopt;
    return std::move(node.mapped());
  }
  const auto found =
      std::find_if(arrived_messages_.begin(), arrived_messages_.end(),
                   [&](const auto& message) { return wants(receive, message.source, message.header); });
  if (found == arrived_messages_.end()) return std::nullopt;
  Arrived message = std::move(*found);
  arrived_messages_.erase(found);
  return message;
}

void Inbox::forget(const Receive& receive) {
  std::erase_if(posted_, [&](const auto& entry) { return entry.second.get() == &receive; });
  std::erase_if(posted_messages_, [&](const auto& other) { return other.get() == &receive; });
}

std::vector<Inbox::Arrived> Inbox::take_all() {
  std::vector<Arrived> all;
  for (auto& [key, message] : arrived_) all.push_back(std::move(message));
  for (Arrived& message : arrived_messages_) all.push_back(std::move(message));
  arrived_.clear();
  arrived_messages_.clear();
  return all;
}

}  // namespace lockstep::messages
