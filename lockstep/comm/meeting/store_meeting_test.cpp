#include "lockstep/comm/meeting/store_meeting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/store/memory_store.h"
#include "lockstep/store/tcp_store.h"
#include "lockstep/store/tcp_store_server.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

StoreMeeting meeting(const std::shared_ptr<Store>& store, int rank, int size) {
  return StoreMeeting({.store = store, .rank = rank, .size = size, .name = "test"});
}

// Runs `body(rank)` on a thread per rank. Returns the error text of each, "" if none.
template <typename Body> std::vector<std::string> on_ranks(int size, const Body& body) {
  std::vector<std::string> said(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      try {
        body(r);
      } catch (const PeerLost& lost) {
        said[static_cast<std::size_t>(r)] = str("lost ", lost.peer(), ": ", lost.what());
      } catch (const Timeout& late) {
        said[static_cast<std::size_t>(r)] = str("late: ", late.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return said;
}

class StoreMeetingSizes : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(, StoreMeetingSizes, ::testing::Values(1, 2, 3, 4));

TEST_P(StoreMeetingSizes, EveryRankGetsEverybodysTextInEveryRound) {
  const int size = GetParam();
  const auto store = std::make_shared<MemoryStore>();
  const auto said = on_ranks(size, [&](int rank) {
    StoreMeeting mine = meeting(store, rank, size);
    for (int round = 0; round < 5; ++round) {
      const std::string nothing_or_bytes =
          rank == 1 ? "" : str("round ", round, " rank ", rank, std::string("\0:7:", 4));
      const auto all = mine.exchange(nothing_or_bytes, {}, Deadline::in(20s));
      ASSERT_EQ(all.size(), static_cast<std::size_t>(size));
      for (int r = 0; r < size; ++r) {
        const std::string expected = r == 1 ? "" : str("round ", round, " rank ", r, std::string("\0:7:", 4));
        EXPECT_EQ(all[static_cast<std::size_t>(r)].text, expected);
      }
    }
  });
  EXPECT_THAT(said, ::testing::Each(""));
  EXPECT_EQ(store->num_keys(), 0U) << "nothing is left";
}

// Rank 0 gives up after rank 1 has come, and tells it. Then all meet under the same name.
TEST(StoreMeeting, NamesEverybodyWhoDidNotComeOnEveryRankWhichMayComeAgain) {
  const auto store = std::make_shared<MemoryStore>();
  const auto early = on_ranks(2, [&](int rank) {
    if (rank == 0) store->wait({"lockstep/meet/test/1/text/1"}, 20s);
    meeting(store, rank, 4).exchange("early", {}, rank == 0 ? Deadline::in(20ms) : Deadline::in(20s));
  });
  for (const std::string& line : early)
    EXPECT_THAT(line, AllOf(HasSubstr("late"), HasSubstr("rank(s) 2, 3 did not come")));
  EXPECT_EQ(store->num_keys(), 0U) << "nothing is left";

  const auto later = on_ranks(4, [&](int rank) {
    const auto all = meeting(store, rank, 4).exchange(str("later ", rank), {}, Deadline::in(20s));
    for (int r = 0; r < 4; ++r) EXPECT_EQ(all.at(static_cast<std::size_t>(r)).text, str("later ", r));
  });
  EXPECT_THAT(later, ::testing::Each(""));
  EXPECT_EQ(store->num_keys(), 0U);
}

// Rank 1 gives up before rank 0 comes, which must not take its text for that of the next attempt.
TEST(StoreMeeting, WhoGivesUpTakesItsTextAlong) {
  const auto store = std::make_shared<MemoryStore>();
  const auto alone = [&](int rank, Deadline deadline) {
    return on_ranks(1, [&](int) { meeting(store, rank, 2).exchange("alone", {}, deadline); }).front();
  };
  EXPECT_THAT(alone(1, Deadline::in(0ms)), HasSubstr("rank 0 did not come"));
  EXPECT_THAT(alone(0, Deadline::in(0ms)), HasSubstr("rank(s) 1 did not come"));
  EXPECT_EQ(store->num_keys(), 0U);
}

// The second process is refused, and the first is not disturbed.
TEST(StoreMeeting, ARankThatIsTakenIsRefused) {
  const auto store = std::make_shared<MemoryStore>();
  std::string refused;
  const auto said = on_ranks(2, [&](int rank) {
    StoreMeeting mine = meeting(store, rank, 2);
    if (rank == 0) {
      store->wait({"lockstep/meet/test/came/1"}, 20s);
      try {
        meeting(store, 1, 2).exchange("an impostor", {}, Deadline::in(20s));
      } catch (const Mismatch& error) {
        refused = error.what();
      }
    }
    const auto all = mine.exchange(str("rank ", rank), {}, Deadline::in(20s));
    EXPECT_EQ(all[1].text, "rank 1");
  });
  EXPECT_THAT(said, ::testing::Each(""));
  EXPECT_THAT(refused, AllOf(HasSubstr("rank 1 of 2: another process has come as rank 1 before: process"),
                             HasSubstr("MASTER_PORT")));
}

TEST(StoreMeeting, ARankOfAnotherJobIsRefusedAlsoAfterAllHaveMet) {
  const auto store = std::make_shared<MemoryStore>();
  const auto of_job = [&](int rank, int size, const char* job) {
    return StoreMeeting({.store = store,
                         .rank = rank,
                         .size = size,
                         .name = "world",
                         .job = {.size = size, .source = "MPICH", .job = job},
                         .is_of_one_job = true});
  };
  const auto said =
      on_ranks(2, [&](int rank) { of_job(rank, 2, "a").exchange("hello", {}, Deadline::in(20s)); });
  EXPECT_THAT(said, ::testing::Each(""));
  const auto refusal_of = [&](int rank, int size, const char* job) {
    try {
      of_job(rank, size, job).exchange("hello", {}, Deadline::in(20s));
    } catch (const Mismatch& error) {
      return std::string(error.what());
    }
    return std::string("met");
  };
  EXPECT_THAT(refusal_of(1, 2, "b"),
              AllOf(HasSubstr("two jobs have met at one store"), HasSubstr("job b"), HasSubstr("job a")));
  EXPECT_THAT(refusal_of(2, 3, "a"), AllOf(HasSubstr("3 ranks"), HasSubstr("2 ranks")));
  EXPECT_THAT(refusal_of(1, 2, "a"), HasSubstr("another process has come as rank 1 before"));
}

TEST(StoreMeeting, TheEndOfAnotherJobsRankIsNotOurs) {
  const JobFingerprint ours{.size = 2, .source = "MPICH", .job = "a"};
  const JobFingerprint theirs{.size = 2, .source = "MPICH", .job = "b"};
  EXPECT_NE(meeting_farewell(1, ours), meeting_farewell(1, theirs));
  EXPECT_NE(meeting_farewell(1, ours), meeting_farewell(0, ours));
  EXPECT_EQ(meeting_farewell(1, ours), meeting_farewell(1, ours));
  EXPECT_LE(meeting_farewell(1 << 20, ours).size(), 63U);
}

class StoreMeetingOverTcp : public ::testing::Test {
 protected:
  std::shared_ptr<Store> store_of(int rank) const {
    return std::make_shared<TcpStore>(TcpStoreOptions{.host = "127.0.0.1",
                                                      .port = server_.address().port,
                                                      .secret = secret_,
                                                      .farewell = meeting_farewell(rank)});
  }
  const Secret secret_ = Secret::random();
  const TcpStoreServer server_{{.secret = secret_, .address = "127.0.0.1"}};
};

TEST_F(StoreMeetingOverTcp, ARankThatDiesWhileMeetingIsNamedOnEveryRank) {
  const auto said = on_ranks(3, [&](int rank) {
    const auto store = store_of(rank);
    meeting(store, rank, 3).exchange("hello", {}, Deadline::in(20s));
    if (rank == 2) return;  // its connection ends
    StoreMeeting again({.store = store, .rank = rank, .size = 3, .name = "next"});
    again.exchange("hello", {}, Deadline::in(20s));
  });
  EXPECT_THAT(said[0], HasSubstr("lost 2"));
  EXPECT_THAT(said[1], HasSubstr("lost 2"));
  EXPECT_EQ(said[2], "");
}

TEST_F(StoreMeetingOverTcp, RankZeroIsNamedToo) {
  const auto said = on_ranks(2, [&](int rank) {
    const auto store = store_of(rank);
    meeting(store, rank, 2).exchange("hello", {}, Deadline::in(20s));
    if (rank == 0) return;
    StoreMeeting({.store = store, .rank = rank, .size = 2, .name = "next"})
        .exchange("hello", {}, Deadline::in(20s));
  });
  EXPECT_THAT(said[1], HasSubstr("lost 0"));
}

// Rank 0 serves the store. When it has all texts and ends, the other ranks must have them too.
TEST_F(StoreMeetingOverTcp, TheServerMayEndAsSoonAsRankZeroReturns) {
  for (int round = 0; round < 20; ++round) {
    auto server =
        std::make_unique<TcpStoreServer>(TcpStoreServerOptions{.secret = secret_, .address = "127.0.0.1"});
    const TcpStoreOptions options = {.host = "127.0.0.1", .port = server->address().port, .secret = secret_};
    const auto said = on_ranks(4, [&](int rank) {
      {
        const auto store = std::make_shared<TcpStore>(options);
        EXPECT_EQ(meeting(store, rank, 4).exchange("hello", {}, Deadline::in(20s)).size(), 4U);
      }
      if (rank == 0) server.reset();
    });
    EXPECT_THAT(said, ::testing::Each(""));
  }
}

}  // namespace
}  // namespace lockstep
