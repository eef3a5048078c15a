#include "cli/plan/mesh_question.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "cli/arguments.h"

namespace lockstep::cli::mesh_question_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(MeshQuestion, HasSizesByAxis) {
  const ModelParallelSizes sizes = parse_mesh_sizes("tp=2,pp=4,vpp=3,cp=5,dp=6");
  EXPECT_EQ(sizes.tensor, 2);
  EXPECT_EQ(sizes.pipeline, 4);
  EXPECT_EQ(sizes.virtual_pipeline, 3);
  EXPECT_EQ(sizes.context, 5);
  EXPECT_EQ(sizes.data, 6);
  EXPECT_EQ(parse_mesh_sizes("pp=8").tensor, 1);
  EXPECT_EQ(parse_mesh_sizes("pp=8").data, 0);  // as many as are left
}

TEST(MeshQuestion, RefusesOtherText) {
  const auto refused = [](const std::string& text, const std::string& part) {
    EXPECT_THAT([&] { parse_mesh_sizes(text); }, ThrowsMessage<UsageError>(HasSubstr(part)));
  };
  refused("tp", "such as tp=2,pp=4, not \"tp\"");
  refused("tp=2,,pp=2", "not \"\"");
  refused("tp=2,tp=4", "--mesh has tp twice");
  refused("xp=2", "an axis of --mesh is one of tp, pp, vpp, cp, dp, not \"xp\"");
  refused("tp=", "the size of tp is a number from 1 on, not \"\"");
  refused("tp=2x", "not \"2x\"");
  refused("tp=0", "not \"0\"");
  refused("tp=99999999999", "not \"99999999999\"");
}

TEST(MeshQuestion, IsJson) {
  const auto json = nlohmann::json::parse(mesh_json(model_parallel_mesh({.tensor = 2, .pipeline = 2}, 8)));
  EXPECT_EQ(json["world_size"], 8);
  EXPECT_EQ(json["shape"], (std::vector<int>{2, 2, 1, 2}));
  EXPECT_EQ(json["mesh_dim_names"], (std::vector<std::string>{"pp", "dp", "cp", "tp"}));
  EXPECT_EQ(json["groups"]["pp"][0], (std::vector<int>{0, 4}));
  EXPECT_EQ(json["groups"]["embedding"][3], (std::vector<int>{3, 7}));
}

}  // namespace
}  // namespace lockstep::cli::mesh_question_test
