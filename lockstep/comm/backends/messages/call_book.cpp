#include "lockstep/comm/backends/messages/call_book.h"

#include <algorithm>
#include <utility>

#include "lockstep/comm/backends/messages/operation.h"

namespace lockstep::messages {

void CallBook::add(const std::shared_ptr<Operation>& operation) {
  pending_.push_back(operation);
  if (operation->is_collective()) queued_.push_back(operation);
}

// Collectives begin in the order of their calls, so one with local parts also holds up those behind it.
std::shared_ptr<Operation> CallBook::next() {
  if (active_ == ACTIVE_LIMIT || queued_.empty()) return nullptr;
  const bool is_local = queued_.front()->has_local_parts();
  if (is_local && local_ > 0) return nullptr;
  ++active_;
  local_ += is_local ? 1 : 0;
  std::shared_ptr<Operation> next = std::move(queued_.front());
  queued_.pop_front();
  return next;
}

std::shared_ptr<Operation> CallBook::remove(const Operation& operation) {
  const auto is_it = [&](const auto& other) { return other.get() == &operation; };
  const auto found = std::find_if(pending_.begin(), pending_.end(), is_it);
  if (found == pending_.end()) return nullptr;
  std::shared_ptr<Operation> removed = std::move(*found);
  pending_.erase(found);
  if (!operation.is_collective() || std::erase_if(queued_, is_it) > 0) return removed;
  --active_;
  local_ -= operation.has_local_parts() ? 1 : 0;
  return removed;
}

CallBook::Operations CallBook::take_all() {
  queued_.clear();
  return std::exchange(pending_, {});
}

const Operation* CallBook::due_announcement(Time now) {
  const auto oldest = std::find_if(pending_.begin(), pending_.end(),
                                   [](const auto& operation) { return operation->is_collective(); });
  if (oldest == pending_.end() || is_announced(**oldest)) return nullptr;
  if (waiting_for_ != (*oldest)->sequence()) {
    waiting_for_ = (*oldest)->sequence();
    waiting_since_ = now;
  }
  if (now - waiting_since_ < SILENCE) return nullptr;
  announced_ = waiting_for_;
  return oldest->get();
}

bool CallBook::is_announced(const Operation& operation) const { return operation.sequence() <= announced_; }

}  // namespace lockstep::messages
