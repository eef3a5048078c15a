// The flight recorder's memory: one memory file per rank and world, named "lockstep-trace", with a ring of
// records per group. While a rank waits in init_process_group there is a file of the header alone, too.
// Written by one process, read by any other at any moment, also while the writer is stopped or after its
// death.
//
//   [ TraceHeader, 4 KiB ][ ring 0 ][ ring 1 ] ... [ ring RINGS - 1 ]
//
// A ring's pages are taken when it is first used.
//   (fewer rings where the size of files is limited)
//   ring: [ RingHeader ][ world rank of each member ... ][ RECORDS records of one cache line ]
//
// Record: `stamp` is 2n - 1 while call number n is being written and 2n from then on. The writer stores 2n -
// 1, a release fence, the fields, 2n with release; a reader loads the stamp with acquire, the fields, an
// acquire fence, the stamp again, and has seen call n if both were 2n. `end` is filled in later, by itself:
// until then it is 0.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "lockstep/base/visibility.h"

namespace lockstep {
namespace LOCKSTEP_PUBLIC trace {

inline constexpr const char* FILE_NAME = "lockstep-trace";
inline constexpr std::uint64_t MAGIC = 0x3330454341525453;  // "STRACE03" in memory
inline constexpr std::size_t RECORDS = 256;                 // the last so many calls of a rank on a group
inline constexpr std::size_t RINGS = 256;                   // groups of a rank that are recorded at once
inline constexpr std::size_t HEADER_BYTES = 4096;
inline constexpr std::size_t RING_BYTES = 32768;
inline constexpr std::size_t LINE_BYTES = 64;

struct TraceHeader {
  std::atomic<std::uint64_t> magic;  // last, with release
  std::int64_t pid;
  std::uint64_t process_start;  // process_stat()
  std::int32_t rank;            // in the world
  std::int32_t size;
  std::uint32_t counts_cycles;  // what the records' times are: CycleClock
  std::uint32_t world;          // which of this process, from 1
  std::uint64_t first_count;    // CycleClock::Pair when this was made
  std::int64_t first_nanoseconds;
  char job[128];
  char program[64];
  std::uint32_t is_joining;  // 1: of a rank that waits in init_process_group, without rings
};

enum class RingState : std::uint32_t { FREE, OPEN, CLOSED };

struct RingHeader {
  std::atomic<std::uint32_t> state;       // RingState; what follows is published by OPEN
  std::atomic<std::uint32_t> generation;  // odd while the ring is given to another group, 2 more behind it
  std::int32_t rank;                      // in the group
  std::int32_t size;
  std::uint32_t lists_members;  // 0: member r is rank r of the world
  std::atomic<std::uint32_t> has_failed;
  char name[128];
  char backend[32];
  char failure[1024];  // published by has_failed
};

struct alignas(LINE_BYTES) Record {
  std::atomic<std::uint64_t> stamp;
  std::atomic<std::uint64_t> sequence;  // of a collective; 0: a message
  std::atomic<std::uint64_t>
      call;  // verb, dtype, op, purpose: a byte each; root, mark or peer in the upper half
  std::atomic<std::uint64_t> count;
  std::atomic<std::uint64_t> tag;
  std::atomic<std::uint64_t> start;
  std::atomic<std::uint64_t> end;  // twice the count of the clock, and 1 more if it failed
};
static_assert(sizeof(Record) == LINE_BYTES);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && sizeof(TraceHeader) <= HEADER_BYTES);

inline constexpr std::size_t RECORDS_AT = RING_BYTES - RECORDS * sizeof(Record);
inline constexpr std::size_t MAX_MEMBERS = (RECORDS_AT - sizeof(RingHeader)) / sizeof(std::int32_t);

}  // namespace trace
}  // namespace lockstep
