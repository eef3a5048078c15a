// MemoryStore: a store for the threads of one process. store.h has the functions.
#pragma once

#include <condition_variable>
#include <mutex>

#include "lockstep/base/visibility.h"
#include "lockstep/store/store.h"
#include "lockstep/store/table.h"

namespace LOCKSTEP_PUBLIC lockstep {

class MemoryStore : public Store {
 public:
  void set(const std::string& key, const std::string& value) override;
  std::optional<std::string> find(const std::string& key) override;
  long add(const std::string& key, long amount) override;
  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& desired) override;
  bool delete_key(const std::string& key) override;
  std::size_t num_keys() override;

 protected:
  void wait_for_change(std::chrono::milliseconds at_most) override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Table table_;  // guarded by mutex_
};

}  // namespace lockstep
