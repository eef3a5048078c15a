// A store in one file on a file system that all processes see; see store.h for what it does.
//
// The file holds "key length, value length, key, value" records; the last record of a key counts, a record without value
// deletes it. Every call locks the file (fcntl), so calls are atomic between processes and machines whose file system
// supports locks. A process killed while writing leaves an incomplete record, which the next writer cuts off.
//
// Created with mode 0600 if missing; a symbolic link is refused. Use a new file for each job: keys of an earlier one are
// still there. Throws StoreError naming the file for anything the operating system or a malformed file refuses.
#pragma once

#include <string>

#include "lockstep/os/fd.h"
#include "lockstep/store/store.h"
#include "lockstep/store/table.h"

namespace lockstep {

class FileStore : public Store {
 public:
  explicit FileStore(const std::string& path);

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
  class Lock;
  Table read_table();
  void append(const std::string& key, const std::string* value);
  [[noreturn]] void fail(const std::string& what) const;

  const std::string path_;
  Fd file_;
  long complete_bytes_ = 0;  // set by read_table, under the lock
};

}  // namespace lockstep
