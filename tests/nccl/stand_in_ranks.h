// Ranks of tests of the stand-in for NCCL: forked processes, each of which opens the library anew.
//
//   TEST(StandInSums, Two) {
//     in_ranks(2, [](Rank& rank) {
//       std::vector<float> values(5, 1.0F + rank.rank);
//       EXPECT_EQ(rank.nccl.all_reduce(values.data(), values.data(), 5, FLOAT32, SUM, rank.comm,
//                                      rank.stream()), SUCCESS);
//       rank.finish();
//       EXPECT_EQ(values[0], 3.0F);
//     });
//   }
//
// in_ranks() fails with what each rank printed if one of them fails, dies, or takes more than 30 s (then it
// is killed). without_comm() makes no communicator.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

#include "lockstep/comm/backends/nccl/api.h"
#include "lockstep/comm/device_streams.h"

namespace lockstep::nccl::stand_in {

// The library's functions.
struct Library {
#define LOCKSTEP_MEMBER(member, symbol, parameters) Result(*member) parameters = nullptr;
  LOCKSTEP_NCCL_FUNCTIONS(LOCKSTEP_MEMBER)
#undef LOCKSTEP_MEMBER
  const char* (*get_error_string)(Result) = nullptr;
  const char* (*get_last_error)(Comm) = nullptr;
  DeviceStreams* streams = nullptr;
};

Library open_library();

class Rank {
 public:
  Rank(int rank, int size, void* board);

  const int rank;
  const int size;
  const Library nccl;
  Comm comm = nullptr;

  // A unique id that rank 0 makes and every rank gets. Each call of all ranks gives a new one.
  UniqueId shared_id();
  // Makes `comm`, blocking or polling until it has its peers or an error, which is returned.
  Result init(int blocking = 0);
  Result async_error() const;
  // Polls until the state is no longer IN_PROGRESS.
  Result settled() const;

  void* stream() const { return nccl.streams->native_handle(queue_); }  // this rank's only one
  const DeviceStreams::Stream& queue() const { return queue_; }
  bool is_done_within(std::chrono::milliseconds time) const;  // all that has been launched
  void finish() const;                                        // waits for it
  void all_ranks_here();                                      // a barrier that does not use the library

 private:
  struct Board;
  Board& board_;
  int ids_ = 0;
  int barriers_ = 0;
  const DeviceStreams::Stream queue_;
};

using Body = std::function<void(Rank&)>;

// `orders`: NCCL_STAND_IN of all ranks.
void in_ranks(int size, const Body& body, const std::string& orders = "");
void without_comm(int size, const Body& body, const std::string& orders = "");

// Until `condition`, or 10 s have passed: then false.
bool comes_true(const std::function<bool()>& condition);

}  // namespace lockstep::nccl::stand_in
