// The flight recorder's memory: one memory file per rank and world, named "lockstep-trace". It has a ring of
// records per group. A rank that waits in init_process_group has one more file, which is only a header. One
// process writes the memory. Any process may read it at any moment, even while the writer is stopped or after
// its death.
//
//   [ TraceHeader, 4 KiB ][ ring 0 ][ ring 1 ] ... [ ring RINGS - 1 ]
//   ring: [ RingHeader ][ world rank of each member ... ][ RECORDS records of one cache line ]
//
// A ring takes memory only once it is used. There are fewer rings where the size of files is limited.
//
// A record's `stamp` is 2n - 1 while call number n is being written, and 2n from then on. The writer stores
// 2n - 1, a release fence, the fields, and 2n with release. A reader loads the stamp with acquire, the
// fields, an acquire fence, and the stamp again. It has seen call n if both stamps were 2n. `end` is written
// later, separately, and is 0 until then.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "lockstep/base/visibility.h"

namespace lockstep {
namespace LOCKSTEP_PUBLIC trace {

inline constexpr const char* FILE_NAME = "lockstep-trace";
inline constexpr std::uint64_t MAGIC = 0x3330454341525453;  // "STRACE03" in memory
// number of calls that are kept for a rank on a group
inline constexpr std::size_t RECORDS = 256;
// number of groups of a rank that are recorded at once
inline constexpr std::size_t RINGS = 256;
inline constexpr std::size_t HEADER_BYTES = 4096;
inline constexpr std::size_t RING_BYTES = 32768;
inline constexpr std::size_t LINE_BYTES = 64;

struct TraceHeader {
  std::atomic<std::uint64_t> magic;  // stored last, with release
  std::int64_t pid;
  std::uint64_t process_start;  // process_stat()
  std::int32_t rank;            // in the world
  std::int32_t size;
  std::uint32_t counts_cycles;  // unit of the records' times: CycleClock
  std::uint32_t world;          // counts the worlds of this process, from 1
  std::uint64_t first_count;    // CycleClock::Pair at the creation of this memory
  std::int64_t first_nanoseconds;
  char job[128];
  char program[64];
  std::uint32_t is_joining;  // 1: the rank waits in init_process_group, and there are no rings
};

enum class RingState : std::uint32_t { FREE, OPEN, CLOSED };

struct RingHeader {
  std::atomic<std::uint32_t> state;  // RingState; OPEN publishes the fields below
  // odd while the ring is being given to another group; 2 more afterwards
  std::atomic<std::uint32_t> generation;
  std::int32_t rank;  // in the group
  std::int32_t size;
  std::uint32_t lists_members;  // 0: member r is rank r of the world
  std::atomic<std::uint32_t> has_failed;
  char name[128];
  char backend[32];
  char failure[1024];  // published by has_failed
};

struct alignas(LINE_BYTES) Record {
  std::atomic<std::uint64_t> stamp;
  std::atomic<std::uint64_t> sequence;  // number of the collective; 0 for a message
  std::atomic<std::uint64_t>
      call;  // verb, dtype, op and purpose, a byte each; root, mark or peer in the upper half
  std::atomic<std::uint64_t> count;
  std::atomic<std::uint64_t> tag;
  std::atomic<std::uint64_t> start;
  std::atomic<std::uint64_t> end;  // twice the clock's count, plus 1 if the call failed
};
static_assert(sizeof(Record) == LINE_BYTES);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && sizeof(TraceHeader) <= HEADER_BYTES);

inline constexpr std::size_t RECORDS_AT = RING_BYTES - RECORDS * sizeof(Record);
inline constexpr std::size_t MAX_MEMBERS = (RECORDS_AT - sizeof(RingHeader)) / sizeof(std::int32_t);

}  // namespace trace
}  // namespace lockstep
