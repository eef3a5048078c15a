#include "cli/bound_kernels.h"

#include <algorithm>
#include <cstdint>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#if defined(__clang__)
#define FULLY_OPTIMIZED  // clang has no such attribute; it uses vectors at -O2 as well
#else
#define FULLY_OPTIMIZED , optimize("O3")
#endif
// The loader chooses by the processor. Not under ThreadSanitizer, which is not ready when the loader chooses.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
#define EVERY_PROCESSOR \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default") FULLY_OPTIMIZED))
#else
#define EVERY_PROCESSOR
#endif

namespace bound {
namespace {

constexpr std::size_t PIECE = 2048;

EVERY_PROCESSOR void add_two_to_two(const float* a, const float* b, float* x, float* y, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const float sum = a[i] + b[i];
    x[i] = sum;
    y[i] = sum;
  }
}

EVERY_PROCESSOR void add(const float* a, const float* b, float* sum, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sum[i] = a[i] + b[i];
}

// Adds a piece in place of the first result; for more than two inputs, in memory on the stack first.
void add_piece(const Move& move, std::size_t begin, std::size_t count) {
  float* const first = move.to[0] + begin;
  if (move.from.size() == 1) {
    if (move.from[0] != move.to[0]) std::copy_n(move.from[0] + begin, count, first);
    return;
  }
  if (move.from.size() == 2) return add(move.from[0] + begin, move.from[1] + begin, first, count);
  alignas(64) float sum[PIECE];
  add(move.from[0] + begin, move.from[1] + begin, sum, count);
  for (std::size_t r = 2; r + 1 < move.from.size(); ++r) add(sum, move.from[r] + begin, sum, count);
  add(sum, move.from.back() + begin, first, count);
}

}  // namespace

void add_then_copy(const Move& move) {
  for (std::size_t begin = 0; begin < move.count; begin += PIECE) {
    const std::size_t count = std::min(PIECE, move.count - begin);
    add_piece(move, begin, count);
    for (std::size_t r = 1; r < move.to.size(); ++r)
      std::copy_n(move.to[0] + begin, count, move.to[r] + begin);
  }
}

void store_to_all(const Move& move) {
  if (move.from.size() == 2 && move.to.size() == 2) {
    add_two_to_two(move.from[0], move.from[1], move.to[0], move.to[1], move.count);
  } else {
    add_then_copy(move);
  }
}

void stream(const Move& move) {
#if defined(__SSE__)
  constexpr std::size_t LANES = 4;
  if (move.from.size() == 1 && move.to.size() == 1 && move.from[0] != move.to[0]) {
    const float* from = move.from[0];
    float* to = move.to[0];
    std::size_t i = 0;
    for (; i < move.count && reinterpret_cast<std::uintptr_t>(to + i) % (LANES * sizeof(float)) != 0; ++i)
      to[i] = from[i];
    for (; i + LANES <= move.count; i += LANES) _mm_stream_ps(to + i, _mm_loadu_ps(from + i));
    for (; i < move.count; ++i) to[i] = from[i];
    _mm_sfence();
    return;
  }
#endif
  add_then_copy(move);
}

namespace {

EVERY_PROCESSOR float sum_of(const float* from, std::size_t count) {
  constexpr std::size_t LANES = 64;  // several vectors, so that no addition waits for the one before
  float sums[LANES] = {};
  for (std::size_t i = 0; i + LANES <= count; i += LANES) {
    for (std::size_t k = 0; k < LANES; ++k) sums[k] += from[i + k];
  }
  float whole = 0;
  for (const float sum : sums) whole += sum;
  return whole;
}

}  // namespace

float read_all(const Move& move) {
  float whole = 0;
  for (const float* from : move.from) whole += sum_of(from, move.count);
  return whole;
}

}  // namespace bound
