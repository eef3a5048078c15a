// rank_seed: derives the seed of one rank's random numbers from the seed of a run. Pure.
//
//   at::manual_seed(rank_seed(42, get_rank()));
//
// Rank 0 gets the seed itself. Other ranks get a number mixed from both, so that no two pairs of seed and
// rank give the same one. With seed + rank, seed 42 on rank 1 would be seed 43 on rank 0.
#pragma once

#include <cstdint>

namespace lockstep {

// Sebastiano Vigna's splitmix64, a bijection.
constexpr std::uint64_t mixed_seed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

constexpr std::uint64_t rank_seed(std::uint64_t seed, int rank) {
  return rank == 0 ? seed : mixed_seed(mixed_seed(seed) + static_cast<std::uint64_t>(rank));
}

}  // namespace lockstep
