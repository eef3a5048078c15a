#include "lockstep/job/model_parallel.h"

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/job/groups.h"
#include "testing/ranks.h"
#include "testing/sums.h"

namespace lockstep {
namespace model_parallel_groups {
namespace {

using harness::sum_over;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Rank = tp + 2 (dp + 2 pp): stages {0,1,2,3} and {4,5,6,7}.
RANKS_TEST(ModelParallel, EightRanksTwoByTwoByTwo, Ranks(8)) {
  const ModelParallel parallel = init_model_parallel({.tensor = 2, .pipeline = 2});
  const int tp = rank() % 2, dp = rank() / 2 % 2, pp = rank() / 4;
  EXPECT_EQ(parallel.get_tensor_model_parallel_rank(), tp);
  EXPECT_EQ(parallel.get_data_parallel_rank(), dp);
  EXPECT_EQ(parallel.get_pipeline_model_parallel_rank(), pp);
  EXPECT_EQ(parallel.get_context_parallel_world_size(), 1);
  EXPECT_EQ(sum_over(parallel.get_tensor_model_parallel_group(), rank()), 2 * (rank() - tp) + 1);
  EXPECT_EQ(sum_over(parallel.get_data_parallel_group(), rank()), 2 * (rank() - 2 * dp) + 2);
  EXPECT_EQ(sum_over(parallel.get_data_parallel_group(true), rank()), 2 * (rank() - 2 * dp) + 2);
  EXPECT_EQ(sum_over(parallel.get_pipeline_model_parallel_group(), rank()), 2 * (rank() - 4 * pp) + 4);
  EXPECT_EQ(sum_over(parallel.get_context_parallel_group(), rank()), rank());
  EXPECT_EQ(sum_over(parallel.get_model_parallel_group(), rank()), dp == 0 ? 0 + 1 + 4 + 5 : 2 + 3 + 6 + 7);
  EXPECT_EQ(sum_over(parallel.get_embedding_group(), rank()), 2 * (rank() - 4 * pp) + 4);
  EXPECT_EQ(parallel.is_pipeline_first_stage(), rank() < 4);
  EXPECT_EQ(parallel.is_pipeline_last_stage(), rank() >= 4);
  EXPECT_EQ(parallel.get_pipeline_model_parallel_next_rank(), (rank() + 4) % 8);
  EXPECT_EQ(parallel.get_pipeline_model_parallel_prev_rank(), (rank() + 4) % 8);
  EXPECT_EQ(parallel.get_pipeline_model_parallel_first_rank(), rank() % 4);
  EXPECT_EQ(parallel.get_pipeline_model_parallel_last_rank(), rank() % 4 + 4);
  parallel.destroy();
  EXPECT_EQ(harness::sum_of_ranks(), 28);
}

// A pipeline over all ranks: the embedding group joins its ends alone.
RANKS_TEST(ModelParallel, EndsOfAPipelineShareTheEmbedding, Ranks(1, 2, 3, 4), Backends("shm", "tcp")) {
  const ModelParallel parallel = init_model_parallel({.pipeline = size()});
  const bool is_end = rank() == 0 || rank() == size() - 1;
  EXPECT_EQ(parallel.is_rank_in_embedding_group(), is_end);
  EXPECT_EQ(parallel.get_pipeline_model_parallel_next_rank(), (rank() + 1) % size());
  EXPECT_EQ(parallel.get_pipeline_model_parallel_prev_rank(), (rank() + size() - 1) % size());
  if (is_end) {
    EXPECT_EQ(sum_over(parallel.get_embedding_group(), rank() + 1), size() == 1 ? 1 : size() + 1);
  } else {
    EXPECT_THAT([&] { parallel.get_embedding_group(); },
                ThrowsMessage<InvalidArgument>(HasSubstr(str("rank ", rank(), " is in stage ", rank()))));
  }
}

RANKS_TEST(ModelParallel, ContextRanksAverageGradientsWithTheDataRanks, Ranks(4)) {
  const ModelParallel parallel =
      init_model_parallel({.pipeline = 1, .virtual_pipeline = 1, .context = 2}, "dp-cp-tp-pp");
  EXPECT_EQ(parallel.get_data_parallel_rank(), rank() % 2);
  EXPECT_EQ(parallel.get_context_parallel_rank(), rank() / 2);
  EXPECT_EQ(parallel.get_data_parallel_world_size(true), 4);
  EXPECT_EQ(parallel.get_data_parallel_world_size(), 2);
  EXPECT_EQ(sum_over(parallel.get_data_parallel_group(true), rank()), 6);
  EXPECT_EQ(sum_over(parallel.get_data_parallel_group(), rank()), rank() < 2 ? 1 : 5);
  EXPECT_EQ(sum_over(parallel.get_context_parallel_group(), rank()), rank() % 2 == 0 ? 2 : 4);
}

RANKS_TEST(ModelParallel, RefusesSizesThatDoNotFitTheJob, Ranks(1, 2)) {
  EXPECT_THAT([&] { init_model_parallel({.tensor = 3}); },
              ThrowsMessage<InvalidArgument>(HasSubstr(str("does not divide the ", size(), " ranks"))));
  EXPECT_THAT([&] { init_model_parallel({.tensor = size(), .virtual_pipeline = 2}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("virtual_pipeline is 2")));
  EXPECT_THAT([&] { init_model_parallel({.tensor = size()}, "tp-xp"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("no axis by the name")));
  EXPECT_EQ(harness::sum_of_ranks(), size() * (size() - 1) / 2);
}

}  // namespace
}  // namespace model_parallel_groups
}  // namespace lockstep
