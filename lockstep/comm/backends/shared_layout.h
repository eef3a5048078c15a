// The memory that the ranks of one group share: how they tell each other what they called, where their data lies, how far
// they are, and what went wrong. Plain data and atomics; the rules are here, the code that follows them in shared_engine.
//
//   control segment (one per group: the world's made by rank 0,    data segments (one per rank: an Arena)
//   a sub-group's a block in the data segment of its rank 0)
//   +-----------+------------+----------------------+----------+   +-------------------------------+
//   | Header    | RankLine   | Slot, PostLine[rank] | Letter   |   | blocks: staged messages,      |
//   | failure,  | one per    | 64 times: collective | ring per |   | gradient buckets              |
//   | doorbell  | rank       | number s in slot s%64| (src,dst)|   +-------------------------------+
//   +-----------+------------+----------------------+----------+
//
// A collective. Rank r posts number s by filling PostLine[s % 64][r] and then storing `sequence = s` (release). It may do so
// once every rank has `finished` number s - 64 there. A rank that reads `sequence == s` (acquire) may read the line and the
// block it names until it stores `finished = s` itself. Two ranks that post at the same time each look at the other's line
// afterwards (both sequentially consistent), so at least one of them sees a disagreement.
//
// Slices of an all_reduce. Once all ranks have posted s, anybody may claim slice n by moving `claim` from (s, n) to (s, n+1);
// a word of an older collective counts as (s, 0), so nobody resets it. After writing the slice to all blocks the claimer
// adds one to `done` in the same way. done == (s, slices) means: nobody touches the blocks any more.
//
// Sleeping. A waiter adds itself to `sleepers`, fences, reads `doorbell`, checks its condition once more and sleeps on that
// value. Whoever changes something that others may wait for rings: fence, and if there are sleepers, doorbell + 1 and wake.
//
// Everything read from here was written by a process of the same user and job, but offsets are checked before use.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "lockstep/base/dtype.h"
#include "lockstep/comm/backend.h"
#include "lockstep/comm/call.h"

namespace lockstep::shared {

inline constexpr std::uint64_t MAGIC = 0x6c6f636b73746570;  // "lockstep"
inline constexpr std::uint64_t SLOTS = 64;                  // collectives in flight
inline constexpr std::uint64_t LETTERS = 32;                // messages in flight from one rank to another
inline constexpr std::size_t LINE = 128;                    // two cache lines: the prefetcher fetches pairs

enum class FailureState : std::uint32_t { NONE, WRITING, WRITTEN };

struct Header {
  std::uint64_t magic = MAGIC;
  std::uint32_t size = 0;
  alignas(LINE) std::atomic<std::uint32_t> failure_state{
      0};  // FailureState; the first rank that fails writes it
  std::uint32_t failure_code = 0;
  std::int32_t failure_peer = -1;
  std::int32_t failure_reporter = -1;
  char failure_text[1200] = {};
  alignas(LINE) std::atomic<std::uint32_t> sleepers{0};
  alignas(LINE) std::atomic<std::uint32_t> doorbell{0};
};

// LEFT: takes part in nothing more. GONE: touches neither the control segment nor others' blocks any more, and needs none of
// its own; when all are gone, the memory of a sub-group is used for other things.
enum class Presence : std::uint32_t { JOINED, LEFT, GONE };

struct alignas(LINE) RankLine {
  std::atomic<std::uint32_t> presence{0};
  std::atomic<std::uint64_t> posted{0};  // last collective this rank called, for messages to people
  std::atomic<std::uint32_t> last_verb{0};
  std::atomic<std::uint64_t> reducing{0};  // the collective of which this rank has a slice in hand
};

struct alignas(LINE) PostLine {
  std::atomic<std::uint64_t> sequence{0};
  std::atomic<std::uint64_t> finished{0};
  Call call;
  std::uint64_t offset = 0;  // of this rank's block in its own data segment
};

struct Slot {
  alignas(LINE) std::atomic<std::uint64_t> claim{0};
  alignas(LINE) std::atomic<std::uint64_t> done{0};
};

// Message number k from src to dst uses letter k % 32, once the receiver has taken number k - 32.
struct alignas(64) Letter {
  std::atomic<std::uint64_t> sequence{0};  // k + 1 when published
  std::atomic<std::uint64_t> taken{0};     // k + 1 when received
  std::uint64_t offset = 0;
  std::uint64_t count = 0;
  std::int32_t tag = 0;
  DType dtype = DType::UINT8;
};

// (sequence, number) in one word, for claim and done.
inline constexpr unsigned NUMBER_BITS = 24;
inline constexpr std::uint64_t pack(std::uint64_t sequence, std::uint64_t number) {
  return sequence << NUMBER_BITS | number;
}
inline constexpr std::uint64_t number_for(std::uint64_t word, std::uint64_t sequence) {
  return word >> NUMBER_BITS == sequence ? word & ((std::uint64_t{1} << NUMBER_BITS) - 1) : 0;
}

// Addresses within one mapping of the control segment.
class Control {
 public:
  static std::size_t bytes(int size);

  // `fresh`: constructs everything (rank 0, in zeroed memory). Otherwise checks magic and size (InternalError).
  Control(std::byte* base, int size, bool fresh);

  Header& header() const;
  RankLine& rank_line(int rank) const;
  Slot& slot(std::uint64_t sequence) const;
  PostLine& post_line(std::uint64_t sequence, int rank) const;
  Letter& letter(int source, int destination, std::uint64_t number) const;

  // Wakes whoever sleeps on the doorbell; call after the change is stored.
  void ring() const;

 private:
  std::byte* base_;
  std::size_t size_;
};

}  // namespace lockstep::shared
