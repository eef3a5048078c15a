// Where the ranks of a communicator of the stand-in for NCCL meet, and the memory through which they talk:
// one memfd of whoever made the unique id, opened by the others as /proc/PID/fd/N and mapped by all.
//
//   Meeting (a page): a random number that the id has too, the size that the first rank to come said, who is
//   there Channel [size * size]: bytes from one rank to one other, in a ring
//
// So ranks must be of one user and one pid namespace, and the maker must live until all have come.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "lockstep/comm/backends/nccl/api.h"

namespace lockstep::nccl::stand_in {

inline constexpr int MOST_RANKS = 64;

// Between two looks of somebody who waits for another process: at first at once, then every 50 us.
class Pause {
 public:
  void operator()();
  void reset() { looks_ = 0; }

 private:
  int looks_ = 0;
};

// One writer, one reader. The writer may drop it: then the reader gets nothing more.
class Channel {
 public:
  // As many bytes as there is room for, or as there are; 0 is possible.
  std::size_t write(const char* data, std::size_t most);
  std::size_t read(char* data, std::size_t most);
  void drop() { is_dropped_.store(true, std::memory_order_release); }
  bool is_dropped() const { return is_dropped_.load(std::memory_order_acquire); }
  bool is_empty() const {
    return taken_.load(std::memory_order_acquire) == written_.load(std::memory_order_acquire);
  }

 private:
  static constexpr std::size_t CAPACITY = std::size_t{128} << 10;

  alignas(64) std::atomic<std::uint64_t> written_;
  alignas(64) std::atomic<std::uint64_t> taken_;
  std::atomic<bool> is_dropped_;
  alignas(64) char bytes_[CAPACITY];
};

// Makes the memfd and keeps it open until the maker's own communicator has its peers, or has ended.
Result make_unique_id(UniqueId* id);

class SharedMemory {
 public:
  struct Problem {
    Result result;
    std::string text;
  };

  // Throws Problem: INVALID_ARGUMENT for what is no id, INVALID_USAGE if ranks disagree about the size or two
  // are the same one, REMOTE_ERROR if the maker is gone.
  SharedMemory(const UniqueId& id, int rank, int size);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Whether all are there. Throws Problem once two ranks have been found to contradict each other.
  bool is_complete();
  Channel& channel(int from, int to) { return channels_[from * size_ + to]; }

 private:
  struct Meeting;

  void open_meeting(const UniqueId& id);
  void check_in(int rank);

  const int size_;
  const std::uint64_t number_;
  int file_ = -1;
  std::size_t bytes_ = 0;
  Meeting* meeting_ = nullptr;
  Channel* channels_ = nullptr;
};

}  // namespace lockstep::nccl::stand_in
