// The memory that the ranks of one group share. Through it the ranks tell each other their calls, the place
// of their data, their progress and the group's failure. It is plain data and atomics. The rules are here;
// backends/shared holds the code that follows them.
//
//   control segment, one per group: the world's made by rank 0,       data segments, one per rank: an Arena
//   a sub-group's a block in the data segment of its rank 0
//   +-----------+------------+------------------------------+----------+   +-------------------------------+
//   | Header    | RankLine   | PostLine[rank], Share[rank]  | Letter   |   | blocks: staged messages,      |
//   | failure,  | one per    | 64 times: collective number  | ring per |   | gradient buckets, the window  |
//   | doorbell  | rank       | s in slot s % 64             | (src,dst)|   | of large reductions           |
//   +-----------+------------+------------------------------+----------+   +-------------------------------+
//
// A collective. Rank r posts number s by filling PostLine[s % 64][r] and then storing `sequence = s`
// (release). It may do so once every rank has finished number s - 64. A rank that reads `sequence == s`
// (acquire) may read the line, and the data that the line names, until it has finished s itself.
// RankLine::finished is the number up to which a rank has finished everything. A post carries that number,
// too, so that RankLine::finished is rarely looked up. Two ranks that post at the same time each look at the
// other's line afterwards. Store and look are sequentially consistent, so at least one of the two ranks sees
// a disagreement.
//
// Contributions (Placement) up to PostLine::ROOM bytes are in the line itself. Larger ones are in a block.
// The block is complete when it is posted, or GROWING: then Share::staged counts the pieces that can be read.
//
// Slices of an all_reduce on blocks. Once all ranks have posted s, any rank may claim slice n of region k by
// moving Share[k].claim from (s, n) to (s, n+1). A word of an older collective counts as (s, 0), so no rank
// resets it. Region k is rank k's to begin with. After writing the slice to all blocks, the claiming rank
// adds one to its own Share::done. When the sum of all Share::done is the number of slices, no rank touches
// the blocks any more.
//
// The window of an all_reduce of private memory that all ranks wait for. Chunk c passes through slot c % W of
// each rank's window, and has a portion for every rank to reduce. Each rank r copies the other ranks'
// portions of its data there and stores WindowLine::in = (s, c+1). When all ranks have, rank q reduces its
// portion from its own memory and the other ranks' slots. It writes the result to its own memory and over its
// inputs in the other ranks' slots, then stores done = (s, c+1). When all ranks have, every rank copies the
// results out of its own slot, and may fill that slot again. The words only grow. A rank has one such call at
// a time.
//
// all_gather, all_to_all, reduce_scatter and broadcast of such memory use the windows, too. Chunk c of rank
// r's data for each other rank passes through slot c % W of its window: in = (s, c+1). A rank that has taken
// chunk c out of all other ranks' slots stores done = (s, c+1). After its last chunk it stores the largest
// possible number. When all ranks have taken chunk c, rank r may fill the slot again.
//
// A message that its sender waits for is lent. The receiver copies it straight out of the sender's memory,
// once instead of twice; private memory is read through the kernel (os/peer_memory.h). A very large message
// in private memory goes through a small ring in the sender's segment, which stays in the caches. The sender
// starts once the receiver has come. It fills piece p when the receiver has taken piece p - RING_PIECES out
// of the same place. If no receiver comes in the time of one copy, the sender copies all of it into a block.
// A send therefore never waits for its receive.
//
// Sleeping. A waiting rank adds itself to `sleepers`, fences, reads `doorbell`, checks its condition once
// more and sleeps on that value. A rank that changes an awaited word rings: it fences and, if there are
// sleepers, increments `doorbell` and wakes them.
//
// Every word here was written by a process of the same user and job. Offsets are checked before use all the
// same.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "lockstep/base/dtype.h"
#include "lockstep/comm/backend.h"
#include "lockstep/comm/backends/segment/paths.h"
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
  PathTable paths;  // rank 0's, for all
  alignas(LINE) std::atomic<std::uint32_t> failure_state{
      0};                          // FailureState; the first rank that fails writes it
  std::uint32_t failure_code = 0;  // the fields of GroupFailure
  std::uint32_t failure_kind = 0;
  std::int32_t failure_peer = -1;
  std::int32_t failure_reporter = -1;
  char failure_text[1196] = {};
  alignas(LINE) std::atomic<std::uint32_t> sleepers{0};
  alignas(LINE) std::atomic<std::uint32_t> doorbell{0};
};

// LEFT: the rank takes part in nothing more. GONE: the rank no longer touches the control segment or other
// ranks' blocks, and needs none of its own. When all ranks are gone, the memory of a sub-group is reused.
enum class Presence : std::uint32_t { JOINED, LEFT, GONE };

struct alignas(LINE) RankLine {
  std::atomic<std::uint32_t> presence{0};
  // pack(sequence, verb and purpose) of its last collective, for messages
  std::atomic<std::uint64_t> last{0};
  // the rank has finished all collectives up to this number: it reads no other rank's data for them any more
  std::atomic<std::uint64_t> finished{0};
  std::atomic<std::uint64_t> reducing{0};  // the collective of which this rank has a slice in hand
};

// Words of pack(sequence, chunks).
struct WindowLine {
  alignas(LINE) std::atomic<std::uint64_t> in{0};
  alignas(LINE) std::atomic<std::uint64_t> done{0};
};

// The place of the data that a rank contributes to a collective.
enum class Placement : std::uint8_t {
  NOWHERE,   // the rank contributes nothing
  IN_LINE,   // in the line
  IN_BLOCK,  // in a block of its segment, complete
  GROWING,   // in a block that is being filled
  IN_PLACE,  // in the caller's own memory, which is shared: results may be written there
  PRIVATE,   // stays in the caller's memory while the caller waits. If another rank chose a different path,
             // the data is copied into a block instead: Share::late_block
  WINDOWED,  // passes through its window; on a differing path, a block instead: Share::late_block
};

constexpr bool may_come_late(Placement placement) {
  return placement == Placement::PRIVATE || placement == Placement::WINDOWED;
}

struct alignas(LINE) PostLine {
  static constexpr std::size_t ROOM = 72;  // the first 8 in the same cache line as all the rest

  std::atomic<std::uint64_t> sequence{0};
  std::uint64_t finished = 0;  // as RankLine::finished, when this was posted
  Call call;
  std::uint64_t offset = 0;  // of this rank's block in its own data segment
  std::uint64_t bytes = 0;   // of a block that grows
  Placement placement = Placement::NOWHERE;
  alignas(8) std::byte payload[ROOM] = {};
};
static_assert(sizeof(PostLine) == LINE);

struct Share {
  alignas(LINE) std::atomic<std::uint64_t> claim{0};  // pack(sequence, slices claimed of this rank's region)
  alignas(LINE) std::atomic<std::uint64_t> done{0};   // pack(sequence, slices reduced by this rank)
  std::atomic<std::uint64_t> staged{0};               // pack(sequence, pieces of its block that can be read)
  std::uint64_t late_block = 0;                       // offset, published by `staged`
};
inline constexpr std::size_t STAGED_PIECE = std::size_t{512} << 10U;

// State of a lent message until it is taken. A message that was never lent has none.
//
//   OFFERED --receiver begins to copy--> TAKING --> Letter::taken
//      |                                   | receiver cannot read it (PRIVATE_MEMORY)
//      +--nobody comes------------------> STAGED: the sender copies it into a block, as if never lent
enum class Lending : std::uint64_t { OFFERED = 1, TAKING = 2, STAGED = 3 };
enum class LentFrom : std::uint8_t { GROUP_MEMORY, PRIVATE_MEMORY, RING };

// The ring of a large message. A piece is small enough to stay within the receiver core's reach. It is large
// enough that handing it over costs little beside copying it.
inline constexpr std::size_t RING_PIECE = std::size_t{128} << 10U;
inline constexpr std::size_t RING_PIECES = 8;

// Message number k from src to dst uses letter k % 32, once the receiver has taken number k - 32.
struct alignas(64) Letter {
  std::atomic<std::uint64_t> sequence{0};  // k + 1 when published
  std::atomic<std::uint64_t> taken{0};     // k + 1 when received
  std::atomic<std::uint64_t> staged{
      0};  // pack(k + 1, pieces of the block that can be read, or of the message, in the ring)
  std::atomic<std::uint64_t> emptied{0};  // pack(k + 1, pieces that the receiver has taken out of the ring)
  std::atomic<std::uint64_t> lent{0};     // pack(k + 1, Lending); moved on by compare-and-swap
  // where the lent or staged data, or the ring, begins (published by `staged`); for private memory, its
  // address
  std::uint64_t offset = 0;
  std::uint64_t count = 0;
  std::int32_t tag = 0;
  DType dtype = DType::UINT8;
  LentFrom from = LentFrom::GROUP_MEMORY;  // if it is lent
};
static_assert(sizeof(Letter) == 64);

// (sequence, number) in one word, for claim and done.
inline constexpr unsigned NUMBER_BITS = 24;
inline constexpr std::uint64_t pack(std::uint64_t sequence, std::uint64_t number) {
  return sequence << NUMBER_BITS | number;
}
inline constexpr std::uint64_t number_for(std::uint64_t word, std::uint64_t sequence) {
  return word >> NUMBER_BITS == sequence ? word & ((std::uint64_t{1} << NUMBER_BITS) - 1) : 0;
}

inline std::uint64_t verb_and_purpose(const Call& call) {
  return static_cast<std::uint64_t>(call.verb) | static_cast<std::uint64_t>(call.purpose) << 8U;
}
inline std::pair<Verb, Purpose> verb_and_purpose_of(std::uint64_t number) {
  return {static_cast<Verb>(number & 0xffU), static_cast<Purpose>(number >> 8U & 0xffU)};
}

// Addresses within one mapping of the control segment.
class Control {
 public:
  static std::size_t bytes(int size);

  // `fresh`: constructs everything (rank 0, in zeroed memory). Otherwise checks magic and size
  // (InternalError).
  Control(std::byte* base, int size, bool fresh);

  Header& header() const { return *reinterpret_cast<Header*>(base_); }
  RankLine& rank_line(int rank) const { return ranks_[rank]; }
  WindowLine& window_line(int rank) const { return windows_[rank]; }
  Share& share(std::uint64_t sequence, int rank) const { return shares_[index(sequence, rank)]; }
  PostLine& post_line(std::uint64_t sequence, int rank) const { return posts_[index(sequence, rank)]; }
  Letter& letter(int source, int destination, std::uint64_t number) const;

  // Wakes all ranks that sleep on the doorbell. Call it after the change is stored.
  void ring() const;
  // The same without the fence. The change must be stored, and looked at by the sleeper, with sequential
  // consistency.
  void ring_after_seq_cst() const;

 private:
  std::size_t index(std::uint64_t sequence, int rank) const {
    return sequence % SLOTS * size_ + static_cast<std::size_t>(rank);
  }

  std::byte* base_;
  std::size_t size_;
  RankLine* ranks_;
  WindowLine* windows_;
  Share* shares_;
  PostLine* posts_;
};

}  // namespace lockstep::shared
