#include "cli/deepspeed/hostfile.h"

#include <gmock/gmock.h>

#include "cli/arguments.h"
#include "cli/deepspeed/launch_words.h"

namespace lockstep::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const std::vector<Host> HOSTS = {{"w1", {0, 1, 2, 3}}, {"w2", {0, 1, 2, 3}}, {"w3", {0, 1}}};

// "w1:0,1 w2:3"
std::string shown(const std::vector<Host>& hosts) {
  std::string text;
  for (const Host& host : hosts) {
    text += (text.empty() ? "" : " ") + host.name;
    for (std::size_t i = 0; i < host.slots.size(); ++i)
      text += (i == 0 ? ":" : ",") + std::to_string(host.slots[i]);
  }
  return text;
}

TEST(Hostfile, ReadsHostsSlotsAndComments) {
  EXPECT_EQ(parse_hostfile("# the rack\nw1 slots=2\n\n  10.0.0.7   slots=1  # old\nw-3.x slots=2", "f"),
            (std::vector<Host>{{"w1", {0, 1}}, {"10.0.0.7", {0}}, {"w-3.x", {0, 1}}}));
}

TEST(Hostfile, NamesTheLineThatIsWrong) {
  const auto says = [](const char* text, const char* what) {
    EXPECT_THAT([&] { parse_hostfile(text, "hosts"); }, ThrowsMessage<UsageError>(HasSubstr(what))) << text;
  };
  says("w1 slots=2\nw2\n", "hosts, line 2: \"w2\" is not HOST slots=N");
  says("w1 slots=0\n", "line 1: ");
  says("w1 slots=two\n", "line 1: ");
  says("w1 slots = 2\n", "line 1: ");
  says("w1 2\n", "line 1: ");
  says("w1 slots=2 w2 slots=2\n", "line 1: ");
  says("w1 slots=1\nw1 slots=2\n", "line 2: the host \"w1\" is there twice");
  says("# nothing\n\n", "hosts names no host");
}

TEST(HostFilters, KeepWhatDeepSpeedsKeep) {
  struct Case {
    const char *include, *exclude, *left;
  };
  for (const auto& [include, exclude, left] : std::vector<Case>{
           {"", "", "w1:0,1,2,3 w2:0,1,2,3 w3:0,1"},
           {"w2", "", "w2:0,1,2,3"},
           {"w2@w1", "", "w1:0,1,2,3 w2:0,1,2,3"},
           {"w2:2,0", "", "w2:0,2"},
           {"w1:1@w1:3@w3", "", "w1:1,3 w3:0,1"},
           {"", "w2", "w1:0,1,2,3 w3:0,1"},
           {"", "w1:0@w2:1,3", "w1:1,2,3 w2:0,2 w3:0,1"},
           {"", "w3:0,1", "w1:0,1,2,3 w2:0,1,2,3"},
       })
    EXPECT_EQ(shown(filter_hosts(HOSTS, include, exclude)), left) << include << " / " << exclude;
}

TEST(HostFilters, RefuseWhatTheHostfileDoesNotHave) {
  const auto says = [](const char* include, const char* exclude, const char* what) {
    EXPECT_THAT([&] { filter_hosts(HOSTS, include, exclude); }, ThrowsMessage<UsageError>(HasSubstr(what)));
  };
  says("w1", "w2", "--include and --exclude are one too many");
  says("w4", "", "--include: the hostfile has no host \"w4\"; did you mean w1?");
  says("", "w3:2", "--exclude: w3 has no slot \"2\"");
  says("w1:", "", "--include: w1 has no slot \"\"");
  says("w1@", "", "no host \"\"");
  says("w1:x", "", "no slot \"x\"");
  says("", "w1@w2@w3", "--exclude w1@w2@w3 leaves no slot");
}

TEST(FirstHosts, AreCountedFromTheTop) {
  EXPECT_EQ(shown(first_hosts(HOSTS, 2, std::nullopt)), "w1:0,1,2,3 w2:0,1,2,3");
  EXPECT_EQ(shown(first_hosts(HOSTS, std::nullopt, 1)), "w1:0 w2:0 w3:0");
  EXPECT_EQ(shown(first_hosts(HOSTS, 1, 2)), "w1:0,1");
  EXPECT_THAT([] { first_hosts(HOSTS, 4, {}); },
              ThrowsMessage<UsageError>(HasSubstr("--num_nodes is 4, but there are 3 hosts")));
}

TEST(RunWords, AreThoseOfOneNode) {
  EXPECT_THAT(run_words({.hosts = {{"localhost", {0, 1}}}, .program = {"./x", "-n"}}),
              ElementsAre("--nproc-per-node", "2", "./x", "-n"));
  EXPECT_THAT(run_words({.hosts = {{"localhost", {0, 2}}}, .options = {"--no-logs"}, .program = {"./x"}}),
              ElementsAre("--nproc-per-node", "2", "--no-logs", "env", "CUDA_VISIBLE_DEVICES=0,2", "./x"));
  EXPECT_THAT(run_words({.hosts = HOSTS, .node = 2, .program = {"./x"}}),
              ElementsAre("--nproc-per-node", "2", "--nnodes", "3", "--node-rank", "2", "--master-addr", "w1",
                          "--master-port", "29500", "./x"));
}

TEST(RunWords, AreAShellsLineForEachNode) {
  EXPECT_EQ(commands_of_all_nodes({.hosts = {{"w1", {0}}, {"w2", {1}}},
                                   .master_addr = "10.0.0.1",
                                   .master_port = "5000",
                                   .program = {"./x", "it's"}}),
            "  w1: lockstep run --nproc-per-node 1 --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 "
            "--master-port 5000 ./x 'it'\\''s'\n"
            "  w2: lockstep run --nproc-per-node 1 --nnodes 2 --node-rank 1 --master-addr 10.0.0.1 "
            "--master-port 5000 env CUDA_VISIBLE_DEVICES=1 ./x 'it'\\''s'\n");
}

}  // namespace
}  // namespace lockstep::cli
