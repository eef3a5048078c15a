#include "lockstep/parallel/context_parallel/sequence_chunks.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace lockstep::context_parallel {
namespace sequence_chunks {
namespace {

TEST(SequenceChunks, AnEarlyAndALateOne) {
  EXPECT_EQ(chunks_of(0, 1), (Chunks{0, 1}));
  EXPECT_EQ(chunks_of(0, 4), (Chunks{0, 7}));
  EXPECT_EQ(chunks_of(1, 4), (Chunks{1, 6}));
  EXPECT_EQ(chunks_of(3, 4), (Chunks{3, 4}));
}

// The pairs of chunks (query, key) of a meeting, by the rule of the mask: a chunk sees those before it and
// itself.
std::set<std::pair<int, int>> pairs_of(int query_rank, int key_rank, int ranks) {
  const Chunks queries = chunks_of(query_rank, ranks), keys = chunks_of(key_rank, ranks);
  const Meeting meeting = meeting_of(query_rank, key_rank, true);
  std::set<std::pair<int, int>> pairs;
  for (const int query : {queries.first, queries.second})
    for (const int key : {keys.first, keys.second}) {
      if (meeting.queries == QueryPart::SECOND && query == queries.first) continue;
      if (meeting.keys == KeyPart::FIRST && key == keys.second) continue;
      if (meeting.is_causal && key > query) continue;
      pairs.insert({query, key});
    }
  return pairs;
}

TEST(SequenceChunks, MeetingsAreTheCausalMask) {
  for (const int ranks : {1, 2, 3, 4, 7}) {
    std::set<std::pair<int, int>> pairs;
    for (int rank = 0; rank < ranks; ++rank) {
      std::size_t work = 0;
      std::set<int> seen;
      for (int step = 0; step < ranks; ++step) {
        const int key_rank = key_rank_of(rank, step, ranks);
        seen.insert(key_rank);
        const auto own = pairs_of(rank, key_rank, ranks);
        work += own.size();
        pairs.insert(own.begin(), own.end());
      }
      EXPECT_EQ(seen.size(), ranks);           // each once
      EXPECT_EQ(work, 2 * ranks + 1) << rank;  // the same for all
    }
    for (int query = 0; query < 2 * ranks; ++query)
      for (int key = 0; key < 2 * ranks; ++key) EXPECT_EQ(pairs.contains({query, key}), key <= query);
  }
}

}  // namespace
}  // namespace sequence_chunks
}  // namespace lockstep::context_parallel
