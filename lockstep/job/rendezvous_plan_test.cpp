#include "lockstep/job/rendezvous_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

RendezvousFacts facts(int rank, int world_size, int local_world_size, const std::string& master_addr = "") {
  RendezvousFacts result;
  result.place = {rank, world_size, 0, local_world_size, Launcher::TORCHRUN, "job"};
  result.identity = {.job = "job", .launcher = ""};
  result.machine = "boot/namespace";
  result.user = "1000";
  result.master_addr = master_addr;
  result.master_port = 29500;
  result.secret_file = "/secret";
  return result;
}

RendezvousFacts with_method(const std::string& method, int rank = 0) {
  RendezvousFacts result = facts(rank, 2, JobEnvironment::UNKNOWN);
  result.init_method = method;
  result.is_place_given = true;
  return result;
}

std::string refusal(const RendezvousFacts& facts) {
  try {
    return "planned " + describe(plan_rendezvous(facts));
  } catch (const InvalidArgument& error) {
    return error.what();
  }
}

TEST(RendezvousPlan, OneMachineMeetsAtAUnixSocketWithoutASecret) {
  const int unknown = JobEnvironment::UNKNOWN;
  for (RendezvousFacts row :
       {facts(1, 2, 2), facts(1, 2, 2, "10.0.0.1"), facts(1, 2, unknown), facts(1, 2, unknown, "127.0.0.1"),
        facts(1, 2, unknown, "localhost"), facts(0, 1, 1)}) {
    row.secret_file.clear();
    const RendezvousPlan plan = plan_rendezvous(row);
    EXPECT_EQ(plan.way, RendezvousWay::UNIX_SOCKET) << describe(plan);
    EXPECT_EQ(plan.name, "torchrun/job");
  }
}

RendezvousFacts by_hand(Launcher source = Launcher::BY_HAND) {
  RendezvousFacts row = facts(0, 2, JobEnvironment::UNKNOWN);
  row.place.source = source;
  row.identity = {};
  return row;
}

TEST(RendezvousPlan, TheLaunchersProcessTellsJobsApartWhereItHasStartedAllRanks) {
  for (const int local : {2, JobEnvironment::UNKNOWN}) {
    RendezvousFacts row = facts(1, 2, local);
    row.identity.launcher = "process 7";
    EXPECT_EQ(plan_rendezvous(row).name, "torchrun/job/process 7");
    EXPECT_EQ(fingerprint(row, plan_rendezvous(row)).launcher, "process 7");
    row.identity.job.clear();
    EXPECT_EQ(plan_rendezvous(row).name, "torchrun/process 7");
    row.init_method = "tcp://127.0.0.1:4000";  // several programs may have the same number in their source
    EXPECT_EQ(plan_rendezvous(row).name, "tcp/4000/torchrun/process 7");
  }
  RendezvousFacts some = facts(0, 4, 2, "10.0.0.1");
  some.identity.launcher = "process 7";
  const JobFingerprint over_network = fingerprint(some, plan_rendezvous(some));
  EXPECT_EQ(over_network.launcher, "") << "other machines have other launchers";
  EXPECT_EQ(over_network.user, "");
  EXPECT_EQ(over_network.job, "job");
  EXPECT_EQ(over_network.size, 4);
}

TEST(RendezvousPlan, ByHandItIsThePortInThisProcessNamespace) {
  for (const Launcher source : {Launcher::BY_HAND, Launcher::OPTIONS}) {
    const RendezvousPlan plan = plan_rendezvous(by_hand(source));
    EXPECT_EQ(plan.name, "by hand/port 29500/boot/namespace");
    EXPECT_EQ(fingerprint(by_hand(source), plan).source, "by hand");
    EXPECT_EQ(fingerprint(by_hand(source), plan).user, "1000");
  }
  RendezvousFacts elsewhere = by_hand();
  elsewhere.machine = "boot/another";
  EXPECT_NE(plan_rendezvous(elsewhere).name, plan_rendezvous(by_hand()).name);
}

TEST(RendezvousPlan, WhereNothingTellsJobsApartItSaysWhatDoes) {
  for (const Launcher source : {Launcher::BY_HAND, Launcher::OPTIONS, Launcher::MPICH}) {
    RendezvousFacts row = by_hand(source);
    row.is_place_given = row.place.source == Launcher::OPTIONS;
    row.master_port.reset();
    EXPECT_THAT(refusal(row), AllOf(HasSubstr("rank 0 of 2"), HasSubstr("nothing distinguishes this job"),
                                    HasSubstr("MASTER_PORT")));
    row.place.world_size = 1;
    EXPECT_THAT(refusal(row), HasSubstr("planned")) << "one rank meets nobody";
    row = by_hand(source);
    row.master_port.reset();
    row.init_method = "tcp://127.0.0.1:4000";
    EXPECT_EQ(plan_rendezvous(row).name,
              str("tcp/4000/", row.place.source == Launcher::MPICH ? "MPICH" : "by hand",
                  "/port 4000/boot/namespace"));
  }
}

// Otherwise only their world sizes would distinguish two jobs.
TEST(RendezvousPlan, JobsOfDifferentSizesMeetAtOnePlaceToFindThatTheyDiffer) {
  RendezvousFacts row = by_hand();
  const std::string two = plan_rendezvous(row).name;
  row.place.world_size = 3;
  EXPECT_EQ(plan_rendezvous(row).name, two);
  EXPECT_FALSE(
      is_same_job(fingerprint(row, plan_rendezvous(row)), fingerprint(by_hand(), plan_rendezvous(row))));
}

TEST(RendezvousPlan, SeveralMachinesMeetOverATcpStoreThatRank0Serves) {
  for (const int local : {1, JobEnvironment::UNKNOWN}) {
    for (const int rank : {0, 1}) {
      const RendezvousPlan plan = plan_rendezvous(facts(rank, 2, local, "10.0.0.1"));
      EXPECT_EQ(plan.way, RendezvousWay::TCP_STORE);
      EXPECT_EQ(plan.host, "10.0.0.1");
      EXPECT_EQ(plan.port, 29500);
      EXPECT_EQ(plan.serves, rank == 0);
    }
  }
}

// Two launchers on one machine, for a trial: the launcher's statement has priority over the address.
TEST(RendezvousPlan, ALauncherThatHasOnlySomeOfTheRanksCountsMoreThanALoopbackAddress) {
  EXPECT_EQ(plan_rendezvous(facts(0, 4, 2, "127.0.0.2")).way, RendezvousWay::TCP_STORE);
}

TEST(RendezvousPlan, TheLauncherMayServe) {
  RendezvousFacts row = facts(0, 2, 1, "10.0.0.1");
  row.does_launcher_serve = true;
  EXPECT_FALSE(plan_rendezvous(row).serves);
}

TEST(RendezvousPlan, RestartedRanksMeetUnderAnotherNameInTheLaunchersStore) {
  RendezvousFacts row = facts(0, 2, 1, "10.0.0.1");
  row.does_launcher_serve = true;
  const std::string first = plan_rendezvous(row).name;
  row.place.restarts = 1;
  const std::string second = plan_rendezvous(row).name;
  row.place.restarts = 2;
  EXPECT_NE(first, second);
  EXPECT_NE(second, plan_rendezvous(row).name);
}

TEST(RendezvousPlan, WhereTorchrunHoldsThePortTheNextOneIsUsed) {
  RendezvousFacts row = facts(0, 2, 1, "10.0.0.1");
  row.has_agent_store = true;
  EXPECT_EQ(plan_rendezvous(row).port, 29501);
  row.master_port = 65535;
  EXPECT_THAT(refusal(row), HasSubstr("65535"));
}

TEST(RendezvousPlan, WithoutASecretItSaysHowToMakeOne) {
  RendezvousFacts row = facts(0, 2, 1, "10.0.0.1");
  row.secret_file.clear();
  EXPECT_THAT(refusal(row), AllOf(HasSubstr("head -c 32 /dev/urandom"), HasSubstr("LOCKSTEP_SECRET_FILE"),
                                  HasSubstr("umask 077")));
  row.secret_fd = 9;
  EXPECT_EQ(plan_rendezvous(row).way, RendezvousWay::TCP_STORE);
}

TEST(RendezvousPlan, SeveralMachinesWithoutAnAddressSayWhatToSet) {
  EXPECT_THAT(refusal(facts(0, 4, 2)),
              AllOf(HasSubstr("only 2 of 4"), HasSubstr("MASTER_ADDR is not set"), HasSubstr("scontrol")));
  RendezvousFacts row = facts(0, 4, 2, "10.0.0.1");
  row.master_port.reset();
  EXPECT_THAT(refusal(row), HasSubstr("MASTER_PORT is not set"));
}

TEST(RendezvousPlan, InheritedSocketsCountUnlessTheCallerSaysWhoItIs) {
  RendezvousFacts row = facts(0, 2, 2);
  row.has_hub = true;
  EXPECT_EQ(plan_rendezvous(row).way, RendezvousWay::INHERITED_SOCKETS);
  row.is_place_given = true;
  EXPECT_EQ(plan_rendezvous(row).way, RendezvousWay::UNIX_SOCKET);
}

TEST(RendezvousPlan, AUrlOfThisMachineNeverOpensItsPort) {
  for (const char* url : {"tcp://127.0.0.1:4000", "tcp://localhost:4000", "tcp://[::1]:4000"}) {
    RendezvousFacts row = with_method(url);
    row.secret_file.clear();
    EXPECT_EQ(plan_rendezvous(row).way, RendezvousWay::UNIX_SOCKET);
    EXPECT_THAT(plan_rendezvous(row).name, HasSubstr("4000"));
  }
}

TEST(RendezvousPlan, AUrlOfANetworkIsServedByRank0) {
  EXPECT_TRUE(plan_rendezvous(with_method("tcp://10.0.0.1:4000", 0)).serves);
  EXPECT_FALSE(plan_rendezvous(with_method("tcp://10.0.0.1:4000", 1)).serves);
  EXPECT_EQ(plan_rendezvous(with_method("tcp://node1:4000", 1)).host, "node1");
}

TEST(RendezvousPlan, FileNeedsTheCallersPlace) {
  EXPECT_EQ(plan_rendezvous(with_method("file:///tmp/x")).name, "/tmp/x");
  RendezvousFacts row = with_method("file:///tmp/x");
  row.is_place_given = false;
  EXPECT_THAT(refusal(row), HasSubstr("needs rank and world_size"));
}

TEST(RendezvousPlan, AGivenStoreIsUsedAndExcludesAMethod) {
  RendezvousFacts row = facts(0, 4, 2, "10.0.0.1");
  row.secret_file.clear();
  row.has_store = true;
  EXPECT_EQ(plan_rendezvous(row).way, RendezvousWay::GIVEN_STORE);
  row.init_method = "env://";
  EXPECT_THAT(refusal(row), HasSubstr("not both"));
}

TEST(RendezvousPlan, AnotherMethodIsRefusedByName) {
  EXPECT_THAT(refusal(with_method("etcd://x")), AllOf(HasSubstr("etcd://x"), HasSubstr("tcp://")));
}

TEST(TcpUrl, IsTakenApart) {
  const TcpUrl url = parse_tcp_url("tcp://[fe80::1]:65535?world_size=4&rank=3");
  EXPECT_EQ(url.host, "fe80::1");
  EXPECT_EQ(url.port, 65535);
  EXPECT_EQ(url.rank, 3);
  EXPECT_EQ(url.world_size, 4);
  EXPECT_EQ(parse_tcp_url("tcp://node-1.example.org:1/").host, "node-1.example.org");
}

TEST(TcpUrl, WhatIsWrongIsRefusedWithAnExample) {
  for (const char* url :
       {"tcp://", "tcp://host", "tcp://:80", "tcp://host:", "tcp://host:0", "tcp://host:65536",
        "tcp://host:80x", "tcp://fe80::1:80", "tcp://[]:80", "tcp://a/b:80", "tcp://host:80?rank",
        "tcp://host:80?rank=-1", "tcp://host:80?rank=1&size=2", "tcp://host:80?rank=x"}) {
    EXPECT_THAT(refusal(with_method(url)), HasSubstr("should look like tcp://10.0.0.1:29500?rank=0")) << url;
  }
}

TEST(RendezvousPlan, IsDescribedInOneLine) {
  EXPECT_EQ(describe(plan_rendezvous(facts(0, 4, 2, "10.0.0.1"))),
            "a TCP store at 10.0.0.1:29500, served by this rank: only 2 of 4 ranks are on this machine");
}

}  // namespace
}  // namespace lockstep
