// meet: makes the group of ranks that torch.distributed has put together.
//
//   ProcessGroup group = meet({.store = process_group->getStore(), .rank = 1, .size = 4});
//
// How         a group of some ranks of the default group: over that group, by its members alone
//             (Backend::split_over). Otherwise over torch's store (job/connect.h). With `is_job` it is the
//             world of init_process_group(), which this process has called; ranks that are C++ programs are
//             members then.
// Blocks      until all members have come.
// Throws      like connect() and split_over().
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"

namespace lockstep::compat::torch_backend {

struct MeetOptions {
  c10::intrusive_ptr<c10d::Store> store;
  int rank = 0;
  int size = 1;
  std::string name = "world";  // for messages
  std::string prefix;          // of the keys in the store; no other group there has it, also none before
  std::vector<int> ranks;      // of the default group; empty: this is the default group
  bool is_job = false;
  std::string backend = "auto";
  std::string secret;         // 32 bytes, or empty
  std::string local_address;  // as in connect()
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  std::chrono::milliseconds warn_after = std::chrono::seconds(5);
};

ProcessGroup meet(const MeetOptions& options);

}  // namespace lockstep::compat::torch_backend
