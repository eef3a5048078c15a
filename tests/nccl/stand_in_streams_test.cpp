// Streams and events of the stand-in for NCCL, in one process.
#include <atomic>
#include <thread>

#include "tests/nccl/stand_in_ranks.h"

namespace lockstep::nccl::stand_in {
namespace {

using std::chrono::milliseconds;

TEST(StandInStreams, AreOfHostMemory) {
  without_comm(1, [](Rank& rank) {
    DeviceStreams& streams = *rank.nccl.streams;
    EXPECT_EQ(streams.device_type(), DeviceType::CPU);
    EXPECT_EQ(streams.current_device(), 0);
    streams.set_device(3);
    EXPECT_EQ(streams.current_device(), 3);
    std::thread([&] { EXPECT_EQ(streams.current_device(), 0); }).join();
    EXPECT_EQ(streams.native_handle(nullptr), nullptr);
    EXPECT_NE(streams.native_handle(streams.make_stream(0)), rank.stream());
  });
}

TEST(StandInStreams, TheCallersOwnIsAlwaysDone) {
  without_comm(1, [](Rank& rank) {
    DeviceStreams& streams = *rank.nccl.streams;
    const auto event = streams.record(nullptr);
    EXPECT_TRUE(streams.is_done(event));
    streams.wait(nullptr, event);
    streams.wait(rank.queue(), event);
    EXPECT_TRUE(rank.is_done_within(milliseconds(1000)));
  });
}

// Something that is under way on rank 0's stream until open(): a message to the other rank, which takes it
// then.
struct Gate {
  explicit Gate(Rank& rank_) : rank(rank_) {
    if (rank.rank == 0) EXPECT_EQ(rank.nccl.send(&value, 1, INT32, 1, rank.comm, rank.stream()), SUCCESS);
  }
  void open() {
    rank.all_ranks_here();
    if (rank.rank == 1) EXPECT_EQ(rank.nccl.recv(&value, 1, INT32, 0, rank.comm, rank.stream()), SUCCESS);
    rank.finish();
  }
  Rank& rank;
  int value = 0;
};

TEST(StandInStreams, WaitForWhatWasRecordedOnAnother) {
  in_ranks(2, [](Rank& rank) {
    DeviceStreams& streams = *rank.nccl.streams;
    auto side = streams.make_stream(0);
    const auto early = streams.record(side);
    Gate gate(rank);
    const auto behind_gate = streams.record(rank.queue());
    streams.wait(side, behind_gate);
    const auto behind_wait = streams.record(side);
    streams.wait(nullptr, early);
    if (rank.rank == 0) {
      std::this_thread::sleep_for(milliseconds(100));
      EXPECT_FALSE(streams.is_done(behind_gate));
      EXPECT_FALSE(streams.is_done(behind_wait));
    }
    gate.open();
    side.reset();  // worked off all the same
    streams.wait(nullptr, behind_wait);
    EXPECT_TRUE(streams.is_done(behind_gate));
    EXPECT_TRUE(streams.is_done(behind_wait));
  });
}

TEST(StandInStreams, EndWithoutBlocking) {
  in_ranks(2, [](Rank& rank) {
    DeviceStreams& streams = *rank.nccl.streams;
    auto side = streams.make_stream(0);
    void* const handle = streams.native_handle(side);
    int value = rank.rank + 1;
    if (rank.rank == 1) rank.all_ranks_here();
    EXPECT_EQ(rank.nccl.all_reduce(&value, &value, 1, INT32, SUM, rank.comm, handle), SUCCESS);
    const auto behind = streams.record(side);
    side.reset();
    if (rank.rank == 0) EXPECT_FALSE(streams.is_done(behind));  // the other rank has not called
    if (rank.rank == 0) rank.all_ranks_here();
    streams.wait(nullptr, behind);
    EXPECT_EQ(value, 3);
    EXPECT_EQ(rank.nccl.all_reduce(&value, &value, 1, INT32, SUM, rank.comm, handle), INVALID_ARGUMENT);
  });
}

TEST(StandInStreams, LaunchesOfOneCommunicatorKeepTheirOrderOnAnyStreams) {
  in_ranks(2, [](Rank& rank) {
    DeviceStreams& streams = *rank.nccl.streams;
    const auto side = streams.make_stream(0);
    int value = rank.rank + 1;
    Gate gate(rank);
    const auto nccl_on = [&](void* stream) {
      EXPECT_EQ(rank.nccl.all_reduce(&value, &value, 1, INT32, SUM, rank.comm, stream), SUCCESS);
    };
    if (rank.rank == 0) {
      nccl_on(streams.native_handle(side));
      const auto behind = streams.record(side);
      std::this_thread::sleep_for(milliseconds(100));
      EXPECT_FALSE(streams.is_done(behind));
    }
    gate.open();
    if (rank.rank == 1) nccl_on(streams.native_handle(side));
    streams.wait(nullptr, streams.record(side));
    EXPECT_EQ(value, 3);
  });
}

TEST(StandInStreams, WithoutOneTheCallDoesTheWork) {
  in_ranks(2, [](Rank& rank) {
    int value = rank.rank + 1;
    EXPECT_EQ(rank.nccl.all_reduce(&value, &value, 1, INT32, SUM, rank.comm, nullptr), SUCCESS);
    EXPECT_EQ(value, 3);
    EXPECT_EQ(rank.nccl.all_reduce(&value, &value, 1, INT32, SUM, rank.comm, &value),
              INVALID_ARGUMENT);  // no stream
  });
}

}  // namespace
}  // namespace lockstep::nccl::stand_in
