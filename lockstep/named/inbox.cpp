#include "lockstep/named/inbox.h"

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::named {

void refuse_second(const Request& request) {
  throw InvalidArgument(str(name_of(request.kind), " ", in_quotes(request.name),
                            ": an operation with this name is under way on this rank; wait for it, or give "
                            "each operation a name of its own"));
}

// All or none: a duplicate is found before anything is kept.
bool Inbox::add(std::span<const std::shared_ptr<Operation>> operations) {
  const std::lock_guard lock(mutex_);
  if (closed_) std::rethrow_exception(closed_);
  for (std::size_t i = 0; i < operations.size(); ++i) {
    if (under_way_.insert(operations[i]).second) continue;
    for (std::size_t added = 0; added < i; ++added) under_way_.erase(operations[added]);
    refuse_second(operations[i]->request());
  }
  const bool is_first = new_.empty();
  if (is_first) oldest_ = now();
  new_.insert(new_.end(), operations.begin(), operations.end());
  return is_first;
}

std::string Inbox::next_name(Kind kind, int process_set) {
  const std::lock_guard lock(mutex_);
  return str(name_of(kind), ".noname.", ++nameless_[{kind, process_set}]);
}

Operations Inbox::take_new() {
  const std::lock_guard lock(mutex_);
  return std::exchange(new_, {});
}

std::optional<Time> Inbox::oldest_new() {
  const std::lock_guard lock(mutex_);
  if (new_.empty()) return std::nullopt;
  return oldest_;
}

bool Inbox::has_under_way() {
  const std::lock_guard lock(mutex_);
  return !under_way_.empty();
}

Operations Inbox::find(const std::vector<Response>& responses) {
  Operations operations;
  operations.reserve(responses.size());
  const std::lock_guard lock(mutex_);
  for (const Response& response : responses) {
    const auto found = under_way_.find(response.request());
    operations.push_back(found == under_way_.end() ? nullptr : *found);
  }
  return operations;
}

// The names are free before a waiter wakes, who may submit them again.
void Inbox::end(const Operations& operations, const std::exception_ptr& failure) {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& operation : operations) under_way_.erase(operation);
  }
  Operation::end_all(operations, failure);
}

void Inbox::close(const std::exception_ptr& failure) {
  Operations left;
  {
    const std::lock_guard lock(mutex_);
    closed_ = failure;
    new_.clear();
    left.assign(under_way_.begin(), under_way_.end());
    under_way_.clear();
  }
  Operation::end_all(left, failure);
}

bool Inbox::is_closed() {
  const std::lock_guard lock(mutex_);
  return closed_ != nullptr;
}

}  // namespace lockstep::named
