#include "lockstep/store/store_desk.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

bool may_set(StoreOp op) { return op == StoreOp::SET || op == StoreOp::ADD || op == StoreOp::COMPARE_SET; }

}  // namespace

void StoreDesk::enter(Client client, const std::string& farewell) {
  if (farewell.empty()) return;
  farewells_[client] = farewell;
  apply({StoreOp::DELETE_KEY, 0, {farewell}});
}

// Only FIRST_OF can wait: its number is the longest wait in milliseconds, 0 for none, negative for no limit.
StoreDesk::Answers StoreDesk::handle(Client client, const StoreRequest& request) {
  Answers answers;
  if (request.op != StoreOp::FIRST_OF) {
    try {
      answers.push_back({client, apply(request)});
    } catch (const StoreError& error) {
      answers.push_back({client, {StoreStatus::FAILED, 0, {error.what()}}});
    }
    if (may_set(request.op)) answer_waiting(request.texts[0], answers);
    return answers;
  }
  if (auto reply = look(request.texts)) {
    answers.push_back({client, std::move(*reply)});
  } else if (request.number == 0) {
    answers.push_back({client, {StoreStatus::MISSING, 0, {}}});
  } else {
    const auto deadline =
        request.number < 0
            ? Deadline::never()
            : Deadline::in(std::chrono::milliseconds(std::min<std::int64_t>(request.number, INT32_MAX)));
    waiting_[client] = {request.texts, deadline};
  }
  return answers;
}

StoreDesk::Answers StoreDesk::leave(Client client) {
  Answers answers;
  waiting_.erase(client);
  const auto farewell = farewells_.find(client);
  if (farewell == farewells_.end()) return answers;
  const std::string key = farewell->second;
  farewells_.erase(farewell);
  for (const auto& [other, same] : farewells_) {
    if (same == key) return answers;  // it has already come back
  }
  try {
    put(key, "gone");
  } catch (const StoreError&) {
    return answers;  // the table is full
  }
  answer_waiting(key, answers);
  return answers;
}

StoreDesk::Answers StoreDesk::expire() {
  Answers answers;
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    if (!at->second.deadline.expired()) {
      ++at;
      continue;
    }
    answers.push_back({at->first, {StoreStatus::MISSING, 0, {}}});
    at = waiting_.erase(at);
  }
  return answers;
}

Deadline StoreDesk::next_deadline() const {
  Deadline next = Deadline::never();
  for (const auto& [client, wait] : waiting_) {
    if (wait.deadline.remaining() < next.remaining()) next = wait.deadline;
  }
  return next;
}

void StoreDesk::put(const std::string& key, const std::string& value) {
  const auto at = table_.find(key);
  const std::size_t before = at == table_.end() ? 0 : key.size() + at->second.size();
  const std::size_t after = bytes_ - before + key.size() + value.size();
  if (after > MAX_TABLE_BYTES)
    throw StoreError("store: it is full (64 MiB); delete_key() keys that are no longer needed");
  bytes_ = after;
  table_[key] = value;
}

StoreReply StoreDesk::apply(const StoreRequest& request) {
  const auto& texts = request.texts;
  switch (request.op) {
    case StoreOp::SET: put(texts[0], texts[1]); return {};
    case StoreOp::FIND:
    case StoreOp::FIRST_OF: return look(texts).value_or(StoreReply{StoreStatus::MISSING, 0, {}});
    case StoreOp::ADD: {
      Table one;
      if (const auto at = table_.find(texts[0]); at != table_.end()) one.insert(*at);
      const long sum = table_add(one, texts[0], static_cast<long>(request.number));
      put(texts[0], one[texts[0]]);
      return {StoreStatus::OK, sum, {}};
    }
    case StoreOp::COMPARE_SET: {
      Table one;
      if (const auto at = table_.find(texts[0]); at != table_.end()) one.insert(*at);
      const std::string value = table_compare_set(one, texts[0], texts[1], texts[2]);
      if (!one.empty()) put(texts[0], one[texts[0]]);
      return {StoreStatus::OK, 0, {value}};
    }
    case StoreOp::DELETE_KEY: {
      const auto at = table_.find(texts[0]);
      if (at == table_.end()) return {};
      bytes_ -= at->first.size() + at->second.size();
      table_.erase(at);
      return {StoreStatus::OK, 1, {}};
    }
    case StoreOp::NUM_KEYS: return {StoreStatus::OK, static_cast<std::int64_t>(table_.size()), {}};
  }
  throw InternalError("store: unknown request");
}

std::optional<StoreReply> StoreDesk::look(const std::vector<std::string>& keys) const {
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto at = table_.find(keys[i]);
    if (at != table_.end()) return StoreReply{StoreStatus::OK, static_cast<std::int64_t>(i), {at->second}};
  }
  return std::nullopt;
}

void StoreDesk::answer_waiting(const std::string& key, Answers& answers) {
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    const auto& keys = at->second.keys;
    auto reply = std::find(keys.begin(), keys.end(), key) == keys.end() ? std::nullopt : look(keys);
    if (!reply) {
      ++at;
      continue;
    }
    answers.push_back({at->first, std::move(*reply)});
    at = waiting_.erase(at);
  }
}

}  // namespace lockstep
