// PrefixStore: a part of another store. Every key gets the prefix "PREFIX/", so that two users of one store
// do not share keys.
//
//   PrefixStore mine(store, "my_library");
//   mine.set("address", text);                  // store: "my_library/address"
//
// num_keys() counts the keys of the whole store, like torch's. It blocks and fails like the other store.
#pragma once

#include <memory>

#include "lockstep/base/visibility.h"
#include "lockstep/store/store.h"

namespace LOCKSTEP_PUBLIC lockstep {

class PrefixStore : public Store {
 public:
  PrefixStore(std::shared_ptr<Store> store, const std::string& prefix)
      : store_(std::move(store)), prefix_(prefix + "/") {}

  void set(const std::string& key, const std::string& value) override { store_->set(prefix_ + key, value); }
  std::optional<std::string> find(const std::string& key) override { return store_->find(prefix_ + key); }
  long add(const std::string& key, long amount) override { return store_->add(prefix_ + key, amount); }
  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& desired) override {
    return store_->compare_set(prefix_ + key, expected, desired);
  }
  bool delete_key(const std::string& key) override { return store_->delete_key(prefix_ + key); }
  std::size_t num_keys() override { return store_->num_keys(); }
  std::optional<StoreEntry> first_of(const std::vector<std::string>& keys, Deadline deadline) override {
    std::vector<std::string> full;
    for (const std::string& key : keys) full.push_back(prefix_ + key);
    return store_->first_of(full, deadline);
  }

 private:
  const std::shared_ptr<Store> store_;
  const std::string prefix_;
};

}  // namespace lockstep
