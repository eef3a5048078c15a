#include "lockstep/comm/trace/trace_analysis.h"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr std::int64_t NOW = 100'000'000'000;
constexpr std::int64_t SECOND = 1'000'000'000;

const Call SUM{Verb::ALL_REDUCE, DType::FLOAT32, ReduceOp::SUM, Purpose::PROGRAM, 0, 1000000};
const Call BARRIER{Verb::BARRIER};

// Builds what one rank of a job did on groups of all ranks, or of some.
class Rank {
 public:
  Rank(int rank, int size) {
    trace_.rank = rank;
    trace_.size = size;
    trace_.pid = 4100 + rank;
    trace_.job = "job";
    trace_.process = 'S';
    trace_.read_ns = NOW;
    std::vector<int> all;
    for (int r = 0; r < size; ++r) all.push_back(r);
    group("world", all);
  }
  Rank& group(const std::string& name, const std::vector<int>& members) {
    GroupTrace group;
    group.name = name;
    group.members = members;
    for (std::size_t r = 0; r < members.size(); ++r) {
      if (members[r] == trace_.rank) group.rank = static_cast<int>(r);
    }
    trace_.groups.push_back(group);
    return *this;
  }
  // The call ended `ago` seconds before now, or began then and goes on.
  Rank& did(const Call& call, double ago) { return add(call, ago, CallState::DONE, 0); }
  Rank& is_in(const Call& call, double ago) { return add(call, ago, CallState::POSTED, 0); }
  Rank& sent(int to, int tag, CallState state = CallState::DONE) {
    return add({Verb::SEND, DType::INT64, ReduceOp::SUM, Purpose::PROGRAM, to, 3}, 2, state, tag);
  }
  Rank& received(int from, int tag, CallState state = CallState::DONE) {
    return add({Verb::RECV, DType::INT64, ReduceOp::SUM, Purpose::PROGRAM, from, 3}, 2, state, tag);
  }
  Rank& process(char letter) {
    trace_.process = letter;
    return *this;
  }
  operator RankTrace() const { return trace_; }  // NOLINT(google-explicit-constructor): for lists of them

 private:
  Rank& add(const Call& call, double ago, CallState state, int tag) {
    GroupTrace& group = trace_.groups.back();
    TraceRecord record;
    const bool message = call.verb == Verb::SEND || call.verb == Verb::RECV;
    if (!message) {
      for (const TraceRecord& other : group.records)
        record.sequence = std::max(record.sequence, other.sequence);
      ++record.sequence;
    }
    record.number = ++group.calls;
    record.call = call;
    record.tag = tag;
    record.state = state;
    const auto moment = NOW - static_cast<std::int64_t>(ago * SECOND);
    record.start_ns = state == CallState::DONE ? moment - SECOND : moment;
    record.end_ns = state == CallState::DONE ? moment : 0;
    group.records.push_back(record);
    return *this;
  }

  RankTrace trace_;
};

TEST(Analyze, NamesTheRankThatIsMissing) {
  const std::string text =
      analyze({Rank(0, 4).did(SUM, 4.3).is_in(SUM, 4.1), Rank(1, 4).did(SUM, 4.3).is_in(SUM, 4.0),
               Rank(2, 4).did(SUM, 4.2), Rank(3, 4).did(SUM, 4.3).is_in(SUM, 3.9)});
  EXPECT_EQ(text,
            "Rank 2 (pid 4102) is missing from all_reduce #2 (float32[1000000], sum) on group \"world\": its "
            "last call "
            "was all_reduce #1 (float32[1000000], sum), done 4.2 s before; ranks 0, 1 and 3 have waited in "
            "#2 for 4.1 "
            "s.");
}

TEST(Analyze, SaysWhyARankIsMissing) {
  const RankTrace waits = Rank(0, 2).is_in(SUM, 4);
  EXPECT_THAT(analyze({waits, Rank(1, 2).process('T')}),
              AllOf(StartsWith("Rank 1 (pid 4101) is missing from all_reduce #1 "),
                    HasSubstr("it is stopped (SIGSTOP); it has made no collective call on this group"),
                    HasSubstr("; rank 0 has waited in #1 for 4.0 s.")));
  EXPECT_THAT(analyze({waits, Rank(1, 2).process('X')}), HasSubstr("its process has ended"));
  EXPECT_THAT(analyze({waits, Rank(1, 2).received(0, 5, CallState::POSTED)}),
              HasSubstr("it has been in recv (int64[3], from rank 0, tag 5) for 2.0 s"));
  EXPECT_THAT(analyze({waits}),
              AllOf(HasSubstr("no records of it were found"), EndsWith("No records of rank 1 of 2 were "
                                                                       "found: not joined, ended, or "
                                                                       "on another machine.")));
}

TEST(Analyze, NamesARankThatIsAhead) {
  const std::string text = analyze({Rank(0, 4).did(SUM, 3), Rank(1, 4).did(SUM, 3), Rank(2, 4).did(SUM, 3),
                                    Rank(3, 4).did(SUM, 3).is_in(BARRIER, 2)});
  EXPECT_THAT(
      text,
      StartsWith("Rank 3 (pid 4103) is ahead, in barrier #2 on group \"world\" for 2.0 s, which ranks 0, "
                 "1 and 2 have not called: rank 0 (pid 4100): its last call was all_reduce #1"));
}

TEST(Analyze, DoesNotBlameTheFirstToWaitForOneThatIsStopped) {
  EXPECT_THAT(analyze({Rank(0, 3).is_in(SUM, 3), Rank(1, 3), Rank(2, 3).process('T')}),
              StartsWith("Ranks 1 and 2 are missing from all_reduce #1"));
}

TEST(Analyze, NamesARankThatIsAheadOfOthersThatWait) {
  EXPECT_THAT(
      analyze({Rank(0, 3).is_in(SUM, 3), Rank(1, 3).is_in(SUM, 3), Rank(2, 3).did(SUM, 3).is_in(BARRIER, 2)}),
      AllOf(HasSubstr("ranks 0 and 1 are still in it"),
            EndsWith("; rank 2 (pid 4102) is ahead, in barrier #2.")));
}

TEST(Analyze, NamesRanksThatDisagree) {
  EXPECT_EQ(analyze({Rank(0, 3).is_in(SUM, 3), Rank(1, 3).is_in(BARRIER, 3), Rank(2, 3).is_in(SUM, 3)}),
            "The ranks disagree about collective #1 on group \"world\": ranks 0 and 2 called "
            "all_reduce(float32[1000000], "
            "sum), rank 1 called barrier().");
}

TEST(Analyze, SaysThatNobodyWaits) {
  EXPECT_EQ(analyze({Rank(0, 2).did(SUM, 2), Rank(1, 2).did(SUM, 1.5)}),
            "Ranks 0 and 1 wait for nothing: the last call was all_reduce #1 (float32[1000000], sum), done "
            "1.5 s before.");
  EXPECT_EQ(analyze({Rank(0, 1)}), "Rank 0 waits for nothing: no call has been made.");
  EXPECT_EQ(analyze({}), "There are no records.");
}

TEST(Analyze, NamesAMessageThatNobodySendsOrReceives) {
  EXPECT_THAT(
      analyze({Rank(0, 2).received(1, 5, CallState::POSTED), Rank(1, 2).did(SUM, 1)}),
      StartsWith(
          "Rank 0 (pid 4100) has waited in recv (int64[3], from rank 1, tag 5) on group \"world\" for 2.0 "
          "s, and rank 1 has sent nothing for it: its last call was all_reduce #1"));
  EXPECT_THAT(
      analyze({Rank(0, 2).sent(1, 5, CallState::POSTED), Rank(1, 2).received(0, 6, CallState::POSTED)}),
      AllOf(HasSubstr("Rank 0 (pid 4100) has waited in send (int64[3], to rank 1, tag 5)"),
            HasSubstr("which rank 1 does not receive: it is in recv (int64[3], from rank 0, tag 6)")));
  EXPECT_THAT(
      analyze({Rank(0, 2).received(ANY_SOURCE, 5, CallState::POSTED), Rank(1, 2)}),
      HasSubstr("recv (int64[3], from any rank, tag 5) on group \"world\" for 2.0 s, and nobody has sent"));
}

TEST(Analyze, CountsMessagesThatWereSentAndNeverReceived) {
  EXPECT_EQ(analyze({Rank(0, 2).sent(1, 5).sent(1, 5).sent(1, 4), Rank(1, 2).received(0, 5).received(0, 4)}),
            "1 message from rank 0 to rank 1 with tag 5 on group \"world\" was never received.");
}

TEST(Analyze, PutsTheGroupThatIsNearerToTheCauseFirst) {
  const Call broadcast{Verb::BROADCAST, DType::INT8, ReduceOp::SUM, Purpose::PROGRAM, 0, 1};
  const std::string text = analyze({Rank(0, 3).is_in(SUM, 3), Rank(1, 3).is_in(SUM, 3).group("pair", {1, 2}),
                                    Rank(2, 3).group("pair", {1, 2}).is_in(broadcast, 4)});
  const auto pair = text.find("Rank 0 (rank 1 of the world, pid 4101) is missing from broadcast #1");
  const auto world = text.find("Rank 2 (pid 4102) is missing from all_reduce #1");
  ASSERT_NE(pair, std::string::npos) << text;
  ASSERT_NE(world, std::string::npos) << text;
  EXPECT_THAT(text, HasSubstr("it has been in broadcast #1 (int8[1], root 0) on group \"pair\" for 4.0 s"));
}

TEST(Analyze, PutsAWaitThatOthersWaitForFirst) {
  // Rank 2 waits in "pair" for rank 3, who is stopped; ranks 0 and 1 wait in "world" for rank 2 and for it.
  const Call broadcast{Verb::BROADCAST, DType::INT8, ReduceOp::SUM, Purpose::PROGRAM, 0, 1};
  const std::string text = analyze({Rank(0, 4).is_in(SUM, 3), Rank(1, 4).is_in(SUM, 3),
                                    Rank(2, 4).group("pair", {2, 3}).is_in(broadcast, 4),
                                    Rank(3, 4).group("pair", {2, 3}).process('T')});
  EXPECT_THAT(text, StartsWith("Rank 1 (rank 3 of the world, pid 4103) is missing from broadcast #1"));
}

TEST(Analyze, TakesTheLastOfSeveralFilesForARank) {
  RankTrace early = Rank(1, 2);
  early.read_ns = NOW - 1;
  EXPECT_THAT(analyze({Rank(0, 2).did(SUM, 1), early, Rank(1, 2).did(SUM, 1), early}),
              Not(HasSubstr("missing")));
}

TEST(Analyze, SaysHowAGroupFailed) {
  RankTrace mine = Rank(0, 1).did(SUM, 1);
  mine.groups[0].failure = "rank 0 aborted the group: enough";
  EXPECT_EQ(analyze({mine}), "Group \"world\" has failed: rank 0 aborted the group: enough.");
}

TEST(Analyze, BearsFilesThatContradictThemselves) {
  RankTrace odd = Rank(0, 2).is_in(SUM, 1);
  odd.groups[0].members = {7, -3};
  EXPECT_NE(analyze({odd}), "");
  RankTrace twice = Rank(1, 2).is_in(SUM, 1);
  twice.groups[0].rank = 0;
  EXPECT_NE(analyze({twice}), "");
}

TEST(ByJob, TellsJobsApart) {
  RankTrace other = Rank(0, 2);
  other.job = "another";
  const auto jobs = by_job({Rank(0, 2), other, Rank(1, 2)});
  ASSERT_EQ(jobs.size(), 2U);
  EXPECT_EQ(jobs[0].size(), 2U);
}

TEST(TraceAnalysis, NamesProgramsAndWhoWaitsInInit) {
  RankTrace waiting;
  waiting.size = 3;
  waiting.pid = 71;
  waiting.program = "train";
  waiting.read_ns = 5'000'000'000;
  waiting.joining_ns = 3'000'000'000;
  EXPECT_EQ(
      analyze({waiting}),
      "Rank 0 (pid 71, train) has waited in init_process_group for 2.0 s, where all 3 ranks of the job meet. "
      "No records of ranks 1 and 2 of 3 were found: not joined, ended, or on another machine.");
  RankTrace other = waiting;
  other.rank = 1;
  other.joining_ns = 4'000'000'000;
  EXPECT_THAT(analyze({waiting, other}),
              StartsWith("Ranks 0 and 1 have waited in init_process_group for 2.0 s"));
  other.joining_ns = 0;
  EXPECT_THAT(analyze({waiting, other}), HasSubstr("Rank 1 waits for nothing: no call has been made."));
}

}  // namespace
}  // namespace lockstep
