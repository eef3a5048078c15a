// The least work of any collective in shared memory: every result is written once, straight from its inputs,
// with only memory between the ranks. Used by bench/bound.cpp and `lockstep bench`. It uses no part of the
// library.
//
//   const Move mine = {{a, b}, {a, b}, 1000};     // a[i] = b[i] = a[i] + b[i]
//   for (const Kernel& kernel : KERNELS) { ... kernel.run(mine) ... }  // the bound is the fastest
//
// Compiled for the baseline, AVX2 and AVX-512. The best that the processor has runs.
#pragma once

#include <cstddef>
#include <vector>

namespace bound {

// The sum of all `from` goes to every `to`. A `to` may be one of `from`.
struct Move {
  std::vector<const float*> from;
  std::vector<float*> to;
  std::size_t count = 0;
};

void store_to_all(const Move& move);   // stores each sum to all places at once
void add_then_copy(const Move& move);  // works in pieces that stay in the nearest cache between the stores
void stream(const Move& move);         // writes copies past the caches, if the processor can

struct Kernel {
  const char* name;
  void (*run)(const Move&);
};
inline constexpr Kernel KERNELS[] = {
    {"add, store to both", store_to_all}, {"add, then copy", add_then_copy}, {"stream", stream}};

// Reads all of `from` and writes nothing. The result is meaningless.
float read_all(const Move& move);

}  // namespace bound
