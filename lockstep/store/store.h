// Store: a small key-value store through which processes find each other. Keys and values are byte strings.
//
//   FileStore store("/shared/job-17/store");
//   store.set("address", "10.0.0.1:4000");          // on one process
//   store.get("address", 30s);                      // on the others: waits until it is there
//   const long arrived = store.add("arrived", 1);   // atomic
//
// Blocks      get(), wait() and first_of() block until the keys exist. When the timeout has passed, get()
//             and wait() throw StoreError, which names the missing key; first_of() returns nothing.
// Threads     all functions may be called from any thread. Each call is atomic, also between processes. A
//             TcpStore makes one call at a time, so a waiting get() delays the calls of other threads.
// Limits      keys and values have at most 1 MiB each; more is a StoreError. A store carries addresses, not
//             data.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

inline constexpr std::chrono::milliseconds STORE_TIMEOUT = std::chrono::minutes(5);
inline constexpr std::size_t MAX_STORE_TEXT = std::size_t{1} << 20U;  // bytes of a key or value

struct StoreEntry {
  std::size_t index = 0;  // of the key in the list that was asked for
  std::string value;
};

class Store {
 public:
  virtual ~Store() = default;

  virtual void set(const std::string& key, const std::string& value) = 0;
  // The value now, without waiting.
  virtual std::optional<std::string> find(const std::string& key) = 0;
  // Adds to a decimal number (0 when missing) and returns the sum. Throws StoreError when the value is not a
  // number.
  virtual long add(const std::string& key, long amount) = 0;
  // Sets `desired` if the value is `expected` (or, with an empty `expected`, if the key is missing); returns
  // the value afterwards, or `expected` when the key is missing and nothing was set, as torch does.
  virtual std::string compare_set(const std::string& key, const std::string& expected,
                                  const std::string& desired) = 0;
  virtual bool delete_key(const std::string& key) = 0;  // whether it existed
  virtual std::size_t num_keys() = 0;

  // The first of `keys` (in this order) that exists, as soon as one does; nullopt when none did at the
  // deadline.
  virtual std::optional<StoreEntry> first_of(const std::vector<std::string>& keys, Deadline deadline);

  std::string get(const std::string& key, std::chrono::milliseconds timeout = STORE_TIMEOUT);
  void wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout = STORE_TIMEOUT);

 protected:
  // Returns when something may have changed, at the latest after `at_most`. For stores that do not override
  // first_of().
  virtual void wait_for_change(std::chrono::milliseconds at_most);
};

}  // namespace lockstep
