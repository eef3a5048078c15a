// Sleeping on a 32-bit word in memory that several processes map. (std::atomic::wait uses a private futex, so
// another process cannot wake it.)
//
//   futex_wait(word, seen, 10ms);        // returns when woken, when word != seen, or after 10 ms
//   word.fetch_add(1); futex_wake_all(word);
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace lockstep {

static_assert(std::atomic<std::uint32_t>::is_always_lock_free && sizeof(std::atomic<std::uint32_t>) == 4,
              "futex words are plain 32-bit integers");

// Spurious returns are normal: the caller checks its condition again.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, std::chrono::nanoseconds timeout);
void futex_wake_all(std::atomic<std::uint32_t>& word);

}  // namespace lockstep
