#include "lockstep/store/store.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/store/table.h"

namespace lockstep {

std::optional<StoreEntry> Store::first_of(const std::vector<std::string>& keys, Deadline deadline) {
  while (true) {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (auto value = find(keys[i])) return StoreEntry{i, std::move(*value)};
    }
    if (deadline.expired()) return std::nullopt;
    wait_for_change(std::chrono::ceil<std::chrono::milliseconds>(
        std::min(deadline.remaining(), std::chrono::nanoseconds(std::chrono::seconds(1)))));
  }
}

void Store::wait_for_change(std::chrono::milliseconds at_most) { nap(at_most); }

std::string Store::get(const std::string& key, std::chrono::milliseconds timeout) {
  return value_by(key, Deadline::in(timeout), timeout);
}

// `timeout` is for the message: `deadline` is its end, and may have come nearer.
std::string Store::value_by(const std::string& key, Deadline deadline, std::chrono::milliseconds timeout) {
  if (auto entry = first_of({key}, deadline)) return std::move(entry->value);
  throw StoreError(str("store: key \"", printable(key), "\" was not set within ", timeout.count(),
                       " ms; did the process that sets it start?"));
}

void Store::wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) {
  const Deadline deadline = Deadline::in(timeout);
  for (const std::string& key : keys) value_by(key, deadline, timeout);
}

void check_store_text(const std::string& key, const std::string& value) {
  if (key.size() > MAX_STORE_TEXT || value.size() > MAX_STORE_TEXT) {
    throw StoreError(str("store: key \"", printable(key, 40), "\" of ", key.size(), " bytes with a value of ",
                         value.size(), " bytes: neither may be larger than 1 MiB"));
  }
}

long table_add(Table& table, const std::string& key, long amount) {
  const auto at = table.find(key);
  const std::string text = at == table.end() ? "" : at->second;
  long value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number = text.empty() || (error == std::errc() && end == text.data() + text.size());
  long sum = 0;
  if (!is_number || __builtin_add_overflow(value, amount, &sum)) {
    throw StoreError(str("store: cannot add ", amount, " to key \"", printable(key), "\": its value is \"",
                         printable(text), "\""));
  }
  table[key] = std::to_string(sum);
  return sum;
}

std::string table_compare_set(Table& table, const std::string& key, const std::string& expected,
                              const std::string& desired) {
  const auto at = table.find(key);
  if (at == table.end()) {
    if (!expected.empty()) return expected;
    table[key] = desired;
    return desired;
  }
  if (at->second == expected) at->second = desired;
  return at->second;
}

}  // namespace lockstep
