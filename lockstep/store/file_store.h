// FileStore: a store in one file on a file system that all processes see. store.h has the functions.
//
// The file holds records "key length, value length, key, value". The last record of a key is valid; a record
// without a value deletes the key. Every call locks the file (os/locked_file.h), so calls are atomic between
// processes. If a process is killed while it writes, its record is incomplete, and the next writer overwrites
// it.
//
// Use a new file for each job, because the old file still has the keys of the earlier job. Throws SystemError
// or StoreError that names the file.
#pragma once

#include <string>

#include "lockstep/base/visibility.h"
#include "lockstep/os/locked_file.h"
#include "lockstep/store/store.h"
#include "lockstep/store/table.h"

namespace LOCKSTEP_PUBLIC lockstep {

class FileStore : public Store {
 public:
  explicit FileStore(const std::string& path) : file_(path) {}

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
  struct Contents {
    Table table;
    std::size_t bytes = 0;  // of complete records; the next record starts here
  };
  // The caller has locked the file.
  Contents read() const;
  void append(const Contents& contents, const std::string& key, const std::string* value) const;

  const LockedFile file_;
};

}  // namespace lockstep
