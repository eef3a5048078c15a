// How a long sequence is shared out over the ranks of a context-parallel group. Pure.
//
//   chunks_of(1, 4)          // rank 1 of 4 has chunks 1 and 6 of 8
//
// Zig-zag     The sequence is cut into 2 n equal chunks, and rank r of n has chunks r and 2 n - 1 - r.
//             Under a causal mask an early chunk sees little and a late one much, so every pair has the
//             same work.
//
//   what the queries of rank r see of the keys of rank k, with causal attention:
//   k == r    QueryPart::ALL,    KeyPart::ALL      causal: the rank's chunks are in the order of the sequence
//   k <  r    QueryPart::ALL,    KeyPart::FIRST    whole: k's second chunk is behind both
//   k >  r    QueryPart::SECOND, KeyPart::ALL      whole: r's first chunk is before both
#pragma once

namespace lockstep::context_parallel {

struct Chunks {
  int first = 0;
  int second = 0;
  bool operator==(const Chunks&) const = default;
};
constexpr Chunks chunks_of(int rank, int ranks) { return {.first = rank, .second = 2 * ranks - 1 - rank}; }

enum class QueryPart { ALL, SECOND };
enum class KeyPart { ALL, FIRST };

// One block of the attention: which of a rank's queries meet which keys of another rank.
struct Meeting {
  QueryPart queries = QueryPart::ALL;
  KeyPart keys = KeyPart::ALL;
  bool is_causal = false;
  bool operator==(const Meeting&) const = default;
};

constexpr Meeting meeting_of(int query_rank, int key_rank, bool is_causal) {
  if (!is_causal) return {};
  if (key_rank == query_rank) return {.is_causal = true};
  if (key_rank < query_rank) return {.keys = KeyPart::FIRST};
  return {.queries = QueryPart::SECOND};
}

// Whose keys a rank holds in step i of the ring: keys travel from rank to rank + 1.
constexpr int key_rank_of(int rank, int step, int ranks) { return (rank - step + ranks) % ranks; }

}  // namespace lockstep::context_parallel
