// StoreAdapter: a store of torch as a Store of ours, so that the ranks of a group of torch meet over it.
//
//   auto store = std::make_shared<StoreAdapter>(torch_store, "lockstep/1/");
//   ProcessGroup group = connect(store, rank, size, {.name = "world"});
//
// Waits       by looking: first after a fraction of a millisecond, later at most 20 ms apart, because torch's
//             stores cannot wait for one of several keys.
// Trust       as torch's store, which anybody can use who can reach it.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <string>
#include <utility>
#include <vector>

#include "lockstep/store/store.h"

namespace lockstep::compat::torch_backend {

class StoreAdapter : public Store {
 public:
  StoreAdapter(c10::intrusive_ptr<c10d::Store> store, std::string prefix)
      : store_(std::move(store)), prefix_(std::move(prefix)) {}

  void set(const std::string& key, const std::string& value) override;
  std::optional<std::string> find(const std::string& key) override;
  long add(const std::string& key, long amount) override;
  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& desired) override;
  bool delete_key(const std::string& key) override;
  std::size_t num_keys() override;
  std::optional<StoreEntry> first_of(const std::vector<std::string>& keys, Deadline deadline) override;

 private:
  const c10::intrusive_ptr<c10d::Store> store_;
  const std::string prefix_;
};

}  // namespace lockstep::compat::torch_backend
