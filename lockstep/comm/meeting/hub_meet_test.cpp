// Ranks that find each other at a socket, and foreign processes among them.
#include "lockstep/comm/meeting/hub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/os/machine.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

struct Comer {
  int rank = 0;
  int size = 2;
  JobFingerprint job = {};
};

// All processes come to one place, and rank 0 is there first. Returns the error text of each, "" if it met
// the others.
std::vector<std::string> told_at_one_place(const std::vector<Comer>& comers) {
  const std::string key = random_hex(8);
  std::vector<std::string> told(comers.size());
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < comers.size(); ++i) {
    threads.emplace_back([&, i] {
      const Comer& me = comers[i];
      try {
        Hub hub = Hub::meet(me.rank, me.size, key, Deadline::in(10s), me.job);
        hub.exchange("hello", {}, Deadline::in(10s));
      } catch (const Mismatch& error) {
        told[i] = str("mix: ", error.what());
      } catch (const Error& error) {
        told[i] = error.what();
      }
    });
  }
  threads.clear();
  return told;
}

const JobFingerprint OF_MPICH = {
    .size = 2, .source = "MPICH", .job = "", .launcher = "process 11", .user = "0"};

JobFingerprint of_another_launcher() {
  JobFingerprint job = OF_MPICH;
  job.launcher = "process 22";
  return job;
}

TEST(HubMeet, RanksOfOneJobMeet) {
  EXPECT_THAT(told_at_one_place({{0, 3, OF_MPICH}, {1, 3, OF_MPICH}, {2, 3, OF_MPICH}}), Each(""));
}

// connect() meets by the same Hub.
TEST(HubMeet, MessagesBeginWithTheFunctionThatMeets) {
  const auto wait_in_vain = [](int rank) {
    Hub::meet(rank, 2, random_hex(8), Deadline::in(10ms), {}, "connect, group \"x\"");
  };
  for (const int rank : {0, 1})
    EXPECT_THAT([&] { wait_in_vain(rank); },
                ThrowsMessage<Timeout>(HasSubstr(
                    str("connect, group \"x\", rank ", rank, " of 2: rank(s) ", 1 - rank, " did not come"))));
}

TEST(HubMeet, ARankOfAnotherJobIsAMixForAllWhoCame) {
  EXPECT_THAT(told_at_one_place({{0, 2, OF_MPICH}, {1, 2, of_another_launcher()}}),
              Each(AllOf(HasSubstr("mix: init_process_group, group of 2: ranks of two jobs have met"),
                         HasSubstr("process 11"), HasSubstr("process 22"), HasSubstr("MASTER_PORT"))));
}

TEST(HubMeet, ARankThatIsTakenIsAMixForAllWhoCame) {
  EXPECT_THAT(told_at_one_place({{0, 3, OF_MPICH}, {1, 3, OF_MPICH}, {1, 3, OF_MPICH}}),
              Each(AllOf(HasSubstr("mix: "), HasSubstr("came as rank 1, which process"))));
}

TEST(HubMeet, ASecondRankZeroIsAMixForBoth) {
  EXPECT_THAT(told_at_one_place({{0, 2, OF_MPICH}, {0, 2, OF_MPICH}}),
              Each(AllOf(HasSubstr("mix: "), HasSubstr("came as rank 0, which process"))));
}

TEST(HubMeet, ARankOutsideIsAMix) {
  EXPECT_THAT(told_at_one_place({{0, 2, {}}, {2, 3, {}}}),
              Each(AllOf(HasSubstr("mix: "), HasSubstr("came as rank 2, which is outside"))));
}

}  // namespace
}  // namespace lockstep
