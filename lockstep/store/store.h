// Store: a small key-value store by which processes find each other. Keys and values are byte strings.
//
//   FileStore store("/shared/job-17/store");
//   store.set("address", "10.0.0.1:4000");          // on one process
//   store.get("address", 30s);                      // on the other processes: waits until it exists
//   const long arrived = store.add("arrived", 1);   // atomic
//
// Blocks      get(), wait() and first_of() block until the keys exist. When the timeout has passed, get() and
//             wait() throw StoreError that names the missing key, and first_of() returns nullopt.
// Threads     any thread may call any function. Each call is atomic, also between processes. A TcpStore makes
//             one call at a time, so a waiting get() delays the calls of other threads.
// Limits      keys and values have at most 1 MiB each; a larger one is a StoreError. A store is for
//             addresses, not for data.
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
  std::size_t index = 0;  // of the key in the list of the call
  std::string value;
};

class Store {
 public:
  virtual ~Store() = default;

  virtual void set(const std::string& key, const std::string& value) = 0;
  // The current value, without waiting.
  virtual std::optional<std::string> find(const std::string& key) = 0;
  // Adds to a decimal number (0 if the key is missing) and returns the sum. Throws StoreError if the value is
  // not a number.
  virtual long add(const std::string& key, long amount) = 0;
  // Sets `desired` if the value is `expected` or, with an empty `expected`, if the key is missing. Returns
  // the value afterwards. If the key is missing and nothing was set, returns `expected`, like torch.
  virtual std::string compare_set(const std::string& key, const std::string& expected,
                                  const std::string& desired) = 0;
  virtual bool delete_key(const std::string& key) = 0;  // returns whether it existed
  virtual std::size_t num_keys() = 0;

  // Returns the first of `keys` (in this order) that exists, as soon as one exists; nullopt if none exists at
  // the deadline.
  virtual std::optional<StoreEntry> first_of(const std::vector<std::string>& keys, Deadline deadline);

  std::string get(const std::string& key, std::chrono::milliseconds timeout = STORE_TIMEOUT);
  void wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout = STORE_TIMEOUT);

 protected:
  // Returns when a key may have changed, at most `at_most` later. For stores that do not override first_of().
  virtual void wait_for_change(std::chrono::milliseconds at_most);
};

}  // namespace lockstep
