#include "lockstep/job/model_parallel_mesh.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/job/device_mesh.h"

namespace lockstep::model_parallel_mesh_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Groups = std::vector<std::vector<int>>;

// The example of Megatron's documentation: 16 GPUs, tensor 2, pipeline 4.
TEST(ModelParallelMesh, IsMegatronsExample) {
  const ModelParallelMesh mesh = model_parallel_mesh({.tensor = 2, .pipeline = 4}, 16);
  EXPECT_EQ(mesh.groups({"tp"}),
            (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}}));
  EXPECT_EQ(mesh.groups({"dp"}),
            (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
  EXPECT_EQ(mesh.groups({"pp"}), (Groups{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}}));
  EXPECT_EQ(mesh.groups({"tp", "pp"}), (Groups{{0, 1, 4, 5, 8, 9, 12, 13}, {2, 3, 6, 7, 10, 11, 14, 15}}));
  EXPECT_EQ(mesh.groups({"pp", "tp"}), mesh.groups({"tp", "pp"}));
  EXPECT_EQ(mesh.embedding_groups(), (Groups{{0, 12}, {1, 13}, {2, 14}, {3, 15}}));
  EXPECT_EQ(mesh.world_size(), 16);
  EXPECT_EQ(mesh.size("dp"), 2);
}

// rank = tp + TP (cp + CP (dp + DP pp)), for all sizes of 1 to 3.
TEST(ModelParallelMesh, HasMegatronsRankFormula) {
  for (int code = 0; code < 81; ++code) {
    const int t = code % 3 + 1, c = code / 3 % 3 + 1, d = code / 9 % 3 + 1, p = code / 27 + 1;
    const ModelParallelMesh mesh =
        model_parallel_mesh({.tensor = t, .pipeline = p, .context = c, .data = d}, t * c * d * p);
    EXPECT_THAT(mesh.shape, ElementsAre(p, d, c, t));
    EXPECT_THAT(mesh.mesh_dim_names, ElementsAre("pp", "dp", "cp", "tp"));
    for (int rank = 0; rank < mesh.world_size(); ++rank) {
      const auto at = [&](const char* axis) { return mesh.get_local_rank(rank, axis); };
      EXPECT_EQ(rank, at("tp") + t * (at("cp") + c * (at("dp") + d * at("pp"))));
      EXPECT_THAT(mesh.get_coordinate(rank), ElementsAre(at("pp"), at("dp"), at("cp"), at("tp")));
    }
  }
}

// Every rank is in one group of each axis; two ranks of a group differ in that axis alone.
TEST(ModelParallelMesh, HasEveryRankInOneGroupOfEachAxis) {
  for (const char* order : {"tp-cp-ep-dp-pp", "tp-pp-dp-cp", "pp-dp-cp-tp", "dp-tp-ep-pp-cp"}) {
    const ModelParallelMesh mesh =
        model_parallel_mesh({.tensor = 2, .pipeline = 3, .context = 2, .data = 4}, 48, order);
    for (const std::string axis : {"tp", "cp", "dp", "pp"}) {
      std::set<int> seen;
      for (const auto& ranks : mesh.groups({axis})) {
        EXPECT_EQ(ranks.size(), static_cast<std::size_t>(mesh.size(axis)));
        for (std::size_t i = 0; i < ranks.size(); ++i) {
          EXPECT_TRUE(seen.insert(ranks[i]).second);
          EXPECT_EQ(mesh.get_local_rank(ranks[i], axis), static_cast<int>(i));
          for (const std::string other : {"tp", "cp", "dp", "pp"})
            if (other != axis)
              EXPECT_EQ(mesh.get_local_rank(ranks[i], other), mesh.get_local_rank(ranks[0], other));
        }
      }
      EXPECT_EQ(seen.size(), 48U);
    }
  }
}

// init_device_mesh makes groups from mesh_rows: the same, for every axis and order.
TEST(ModelParallelMesh, IsADeviceMesh) {
  for (const char* order : {MEGATRON_RANK_ORDER, "tp-pp-dp-cp", "pp-dp-cp-tp"}) {
    const ModelParallelMesh mesh =
        model_parallel_mesh({.tensor = 3, .pipeline = 2, .context = 2, .data = 2}, 24, order);
    for (std::size_t axis = 0; axis < mesh.shape.size(); ++axis)
      EXPECT_EQ(mesh_rows(mesh.shape, axis), mesh.groups({mesh.mesh_dim_names[axis]})) << order;
  }
}

TEST(ModelParallelMesh, HasAnyOrder) {
  const ModelParallelMesh mesh = model_parallel_mesh({.tensor = 2, .pipeline = 2}, 8, "tp-pp-dp");
  EXPECT_EQ(mesh.groups({"pp"}), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(mesh.groups({"dp"}), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(mesh.groups({"cp"}), (Groups{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}}));
  EXPECT_THAT(mesh.mesh_dim_names, ElementsAre("cp", "dp", "pp", "tp"));  // what is left out comes last
}

TEST(ModelParallelMesh, HasGroupsOfSeveralAxes) {
  const ModelParallelMesh mesh = model_parallel_mesh({.tensor = 2, .pipeline = 2, .context = 2}, 16);
  EXPECT_EQ(mesh.groups({"dp", "cp"}),
            (Groups{{0, 2, 4, 6}, {1, 3, 5, 7}, {8, 10, 12, 14}, {9, 11, 13, 15}}));
  EXPECT_EQ(mesh.groups({}).size(), 16U);
  EXPECT_EQ(mesh.groups({"tp", "cp", "dp", "pp"}).size(), 1U);
  EXPECT_EQ(model_parallel_mesh({}, 2).embedding_groups(), (Groups{{0}, {1}}));  // no pipeline: one rank each
}

TEST(ModelParallelMesh, IsPrinted) {
  EXPECT_EQ(to_text(model_parallel_mesh({.tensor = 2, .pipeline = 2, .virtual_pipeline = 3}, 4)),
            "4 ranks: pp 2 x dp 1 x cp 1 x tp 2, 3 model chunks a rank\n"
            "\n"
            "rank    pp    dp    cp    tp\n"
            "   0     0     0     0     0\n"
            "   1     0     0     0     1\n"
            "   2     1     0     0     0\n"
            "   3     1     0     0     1\n"
            "\n"
            "tp          {0,1} {2,3}\n"
            "cp          {0} {1} {2} {3}\n"
            "dp          {0} {1} {2} {3}\n"
            "pp          {0,2} {1,3}\n"
            "dp-cp       {0} {1} {2} {3}\n"
            "tp-pp       {0,1,2,3}\n"
            "embedding   {0,2} {1,3}\n");
}

TEST(ModelParallelMesh, RefusesSizesByName) {
  const auto refused = [](const ModelParallelSizes& sizes, int world_size, const std::string& text) {
    EXPECT_THAT([&] { model_parallel_mesh(sizes, world_size); },
                ThrowsMessage<InvalidArgument>(HasSubstr(text)));
  };
  refused({.tensor = 3}, 8, "tensor 3 x context 1 x pipeline 1 is 3, which does not divide the 8 ranks");
  refused({.tensor = 2, .data = 2}, 8,
          "tensor 2 x context 1 x data 2 x pipeline 1 has 4 ranks, the job has 8");
  refused({.tensor = 16}, 8, "does not divide the 8 ranks");
  refused({.tensor = 0}, 8, "tensor is 0; it is at least 1");
  refused({.context = -2}, 8, "context is -2");
  refused({.data = -1}, 8, "data is -1");
  refused({.pipeline = 0}, 8, "pipeline is 0");
  refused({.virtual_pipeline = 0}, 8, "virtual_pipeline is 0");
  refused({.virtual_pipeline = 2}, 8, "virtual_pipeline is 2 with a pipeline of 1");
  refused({.tensor = 65536, .pipeline = 65536}, 8, "does not divide");
  refused({}, 0, "data is 0");
}

TEST(ModelParallelMesh, RefusesOrdersByName) {
  const auto refused = [](const char* order, const std::string& text) {
    EXPECT_THAT([&] { model_parallel_mesh({.tensor = 2, .pipeline = 2}, 8, order); },
                ThrowsMessage<InvalidArgument>(HasSubstr(text)));
  };
  refused("tp-dp-tp-pp", "the rank order \"tp-dp-tp-pp\" has tp twice");
  refused("tp-dp", "lacks pp, which has size 2");
  refused("tp-xp-pp", "has no axis by the name \"xp\"");
  refused("", "has no axis by the name \"\"");
  refused("tp--pp-dp", "has no axis by the name \"\"");
  const ModelParallelMesh mesh = model_parallel_mesh({}, 2);
  EXPECT_THAT([&] { mesh.groups({"ep"}); }, ThrowsMessage<InvalidArgument>(HasSubstr("no axis \"ep\"")));
  EXPECT_THAT([&] { mesh.groups({"dp", "dp"}); }, ThrowsMessage<InvalidArgument>(HasSubstr("axis dp twice")));
  EXPECT_THAT([&] { mesh.get_coordinate(2); },
              ThrowsMessage<InvalidArgument>(HasSubstr("no rank 2 among 2")));
}

}  // namespace
}  // namespace lockstep::model_parallel_mesh_test
