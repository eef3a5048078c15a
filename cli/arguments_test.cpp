#include "cli/arguments.h"

#include <gmock/gmock.h>

#include <array>

#include "lockstep/base/nearest.h"

namespace lockstep::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::array KNOWN = std::to_array<Option>({{"--nproc-per-node", "-np", true},
                                                {"--nproc-per-node", "-n", true},
                                                {"--log-dir", "", true},
                                                {"--no-prefix", "", false},
                                                {"--help", "-h", false}});

Arguments split(const std::vector<std::string>& words) { return split_arguments(words, KNOWN); }

std::string complaint(const std::vector<std::string>& words) {
  try {
    split(words);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(SplitArguments, EndsOursAtTheProgram) {
  const Arguments found = split({"-n", "4", "--no-prefix", "./x", "-n", "9", "--help", "--"});
  EXPECT_THAT(found.options, ElementsAre("--nproc-per-node", "4", "--no-prefix"));
  EXPECT_THAT(found.program, ElementsAre("./x", "-n", "9", "--help", "--"));
}

TEST(SplitArguments, EndsOursAtTwoDashes) {
  const Arguments found = split({"--no-prefix", "--", "./x", "--help"});
  EXPECT_THAT(found.options, ElementsAre("--no-prefix"));
  EXPECT_THAT(found.program, ElementsAre("./x", "--help"));
}

TEST(SplitArguments, UnderstandsEverySpelling) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"-n", "4"},
                                                {"-n4"},
                                                {"-np", "4"},
                                                {"-np4"},
                                                {"--nproc-per-node", "4"},
                                                {"--nproc-per-node=4"},
                                                {"--nproc_per_node", "4"},
                                                {"--nproc_per-node=4"}}) {
    EXPECT_THAT(split(words).options, ElementsAre("--nproc-per-node", "4")) << words[0];
  }
  EXPECT_THAT(split({"--log-dir=a_b=c"}).options, ElementsAre("--log-dir", "a_b=c"))
      << "values stay as they are";
  EXPECT_THAT(split({"--log-dir", "--"}).options, ElementsAre("--log-dir", "--"));
}

TEST(SplitArguments, MayFindNoProgram) {
  EXPECT_THAT(split({}).program, IsEmpty());
  EXPECT_THAT(split({"-n", "4"}).program, IsEmpty());
  EXPECT_THAT(split({"--"}).program, IsEmpty());
}

TEST(SplitArguments, NeverTakesAMisspeltOptionForTheProgram) {
  EXPECT_THAT(complaint({"--nproc-per-nod", "3", "./x"}), HasSubstr("did you mean --nproc-per-node?"));
  EXPECT_THAT(complaint({"--nproc_per_nodes=3", "./x"}), HasSubstr("did you mean --nproc-per-node?"));
  EXPECT_EQ(complaint({"-q", "./x"}), "lockstep run has no option -q");
  EXPECT_EQ(complaint({"-hx"}), "lockstep run has no option -hx");
  EXPECT_THAT(complaint({"--\x1b[2J"}), HasSubstr("--\\x1b[2J"));
}

TEST(SplitArguments, RefusesAProgramThatStartsWithADash) {
  EXPECT_THAT(complaint({"--", "-x"}), HasSubstr("did you mean ./-x?"));
  EXPECT_THAT(complaint({"--", "--log_dir", "d", "./x"}),
              HasSubstr("did you mean --log-dir? (before the --)"));
}

TEST(SplitArguments, WantsValuesWhereTheyBelong) {
  EXPECT_EQ(complaint({"-n"}), "--nproc-per-node needs a value");
  EXPECT_EQ(complaint({"--log-dir=", "./x"}), "--log-dir needs a value");
  EXPECT_EQ(complaint({"--no-prefix=yes", "./x"}), "--no-prefix takes no value");
}

TEST(Nearest, FindsWordsThatDifferLittle) {
  const std::array<std::string, 3> words = {"run", "info", "--version"};
  EXPECT_EQ(nearest("rum", words), "run");
  EXPECT_EQ(nearest("--verison", words), "--version");
  EXPECT_EQ(nearest("completely-else", words), "");
  EXPECT_EQ(nearest("", words), "");
}

}  // namespace
}  // namespace lockstep::cli
