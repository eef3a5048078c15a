#include "lockstep/job/device_mesh.h"

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/collectives.h"
#include "testing/ranks.h"
#include "testing/sums.h"

namespace lockstep {
namespace {

using harness::sum_over;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

RANKS_TEST(DeviceMesh, RowsOfEachAxis, Ranks(1), WithoutGroup()) {
  EXPECT_THAT(mesh_rows({2, 3}, 0), ElementsAre(ElementsAre(0, 3), ElementsAre(1, 4), ElementsAre(2, 5)));
  EXPECT_THAT(mesh_rows({2, 3}, 1), ElementsAre(ElementsAre(0, 1, 2), ElementsAre(3, 4, 5)));
  EXPECT_THAT(mesh_rows({2, 2, 2}, 1),
              ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3), ElementsAre(4, 6), ElementsAre(5, 7)));
  EXPECT_THAT(mesh_rows({4}, 0), ElementsAre(ElementsAre(0, 1, 2, 3)));
}

// Ranks 0 1 / 2 3: the rows along tp are {0,1} and {2,3}, along dp {0,2} and {1,3}.
RANKS_TEST(DeviceMesh, TwoByTwo, Ranks(4), BackendsWithPeers(), Except("thread")) {
  const DeviceMesh mesh = init_device_mesh({2, 2}, {"dp", "tp"});
  EXPECT_EQ(mesh.ndim(), 2);
  EXPECT_EQ(mesh.size(), 4);
  EXPECT_EQ(mesh.size("tp"), 2);
  EXPECT_THAT(mesh.shape(), ElementsAre(2, 2));
  EXPECT_THAT(mesh.mesh_dim_names(), ElementsAre("dp", "tp"));
  EXPECT_THAT(mesh.get_coordinate(), ElementsAre(rank() / 2, rank() % 2));
  EXPECT_EQ(mesh.get_local_rank("dp"), rank() / 2);
  EXPECT_EQ(mesh.get_local_rank("tp"), rank() % 2);
  EXPECT_EQ(mesh.get_group("tp").rank(), rank() % 2);
  EXPECT_EQ(sum_over(mesh.get_group("tp"), rank()), rank() < 2 ? 0 + 1 : 2 + 3);
  EXPECT_EQ(sum_over(mesh.get_group("dp"), rank()), rank() % 2 == 0 ? 0 + 2 : 1 + 3);

  const DeviceMesh column = mesh["dp"];
  EXPECT_EQ(column.ndim(), 1);
  EXPECT_EQ(sum_over(column.get_group(), 1), 2);
  const DeviceMesh turned = mesh.slice({"tp", "dp"});
  EXPECT_THAT(turned.get_coordinate(), ElementsAre(rank() % 2, rank() / 2));
  EXPECT_THAT([&] { mesh.get_group(); }, ThrowsMessage<InvalidArgument>(HasSubstr("2 axes")));
  EXPECT_THAT([&] { mesh.get_group("pp"); }, ThrowsMessage<InvalidArgument>(HasSubstr("there are dp, tp")));
}

RANKS_TEST(DeviceMesh, OneAxisIsTheWorld, Ranks(1, 2, 3, 4)) {
  const DeviceMesh mesh = init_device_mesh({size()}, {"dp"});
  EXPECT_EQ(mesh.get_local_rank("dp"), rank());
  EXPECT_EQ(sum_over(mesh.get_group(), rank()), size() * (size() - 1) / 2);
}

RANKS_TEST(DeviceMesh, RefusesWhatDoesNotFitTheJob, Ranks(1, 2)) {
  const auto refuses = [&](const std::vector<int>& shape, const std::vector<std::string>& names,
                           const std::string& why) {
    EXPECT_THAT([&] { init_device_mesh(shape, names); }, ThrowsMessage<InvalidArgument>(HasSubstr(why)));
  };
  refuses({size() + 1}, {"dp"}, str("has ", size() + 1, " ranks, the job has ", size()));
  refuses({size(), 1}, {"dp"}, "one name per size");
  refuses({}, {}, "one name per size");
  refuses({size(), 1}, {"dp", "dp"}, "given twice");
  refuses({size(), 1}, {"dp", ""}, "empty");
  refuses({size(), 0}, {"dp", "tp"}, "not positive");
  refuses({1 << 20, 1 << 20}, {"dp", "tp"}, "the job has");
  EXPECT_EQ(init_device_mesh({size(), 1}, {"dp", "tp"}).size("tp"), 1);
}

}  // namespace
}  // namespace lockstep
