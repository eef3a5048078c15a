#include "lockstep/comm/backends/mpi/library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::mpi {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::vector<std::string> BOTH = {"openmpi", "mpich"};

TEST(MpiLibrary, TheUserDecidesFirst) {
  EXPECT_EQ(
      choose_library({.wanted = "mpich", .loaded = "openmpi", .has_openmpi_launcher = true, .there = BOTH}),
      "mpich");
  EXPECT_THAT([] { choose_library({.wanted = "intel"}); },
              ThrowsMessage<InvalidArgument>(
                  AllOf(HasSubstr("LOCKSTEP_MPI=\"intel\""), HasSubstr("openmpi, mpich"))));
}

TEST(MpiLibrary, ThenWhatTheProgramBrings) {
  EXPECT_EQ(choose_library({.loaded = "openmpi", .has_mpich_launcher = true, .there = BOTH}), "openmpi");
  EXPECT_THAT([] { choose_library({.loaded = "another", .there = BOTH}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("neither Open MPI nor MPICH")));
}

TEST(MpiLibrary, ThenTheLauncher) {
  EXPECT_EQ(choose_library({.has_openmpi_launcher = true, .there = BOTH}), "openmpi");
  EXPECT_EQ(choose_library({.has_mpich_launcher = true, .there = BOTH}), "mpich");
  EXPECT_EQ(choose_library({.has_mpich_launcher = true, .there = {"openmpi"}}),
            "mpich");  // which is then missing
}

TEST(MpiLibrary, ThenTheOnlyOne) {
  EXPECT_EQ(choose_library({.there = {"mpich"}}), "mpich");
  EXPECT_THAT([] { choose_library({.there = BOTH}); },
              ThrowsMessage<InvalidArgument>(
                  AllOf(HasSubstr("LOCKSTEP_MPI=openmpi"), HasSubstr("LOCKSTEP_MPI=mpich"))));
  EXPECT_THAT(
      [] { choose_library({}); },
      ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("install libopenmpi-dev"), HasSubstr("libmpich-dev"))));
}

TEST(MpiLibrary, ThisProcessHasNone) {
  for (const Found& one : find_libraries())
    EXPECT_THAT(one.path, ::testing::AnyOf("", HasSubstr("lockstep_mpi_" + one.name + ".so")));
}

}  // namespace
}  // namespace lockstep::mpi
