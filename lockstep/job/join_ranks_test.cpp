#include "lockstep/job/join.h"

#include <stdexcept>

#include "lockstep/base/error.h"
#include "lockstep/comm/collectives/collectives.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Sums 10 * rank + 1 per call over the ranks that have inputs. twice() makes two such sums per call.
class Counter : public Joinable {
 public:
  explicit Counter(ProcessGroup group) : group_(std::move(group)) {}

  void add() {
    const auto notice = Join::notify_join_context(*this, 0);
    total += sum(10 * group_.rank() + 1);
    active = notice->wait().active;
  }
  void twice() {
    newest_active = Join::notify_join_context(*this, 1)->wait().newest_active.rank;
    total += sum(10 * group_.rank() + 1);
    total += sum(10 * group_.rank() + 1);
  }
  std::shared_ptr<JoinHook> join_hook(const JoinOptions&) override { return std::make_shared<Hook>(*this); }
  const ProcessGroup& join_process_group() const override { return group_; }

  int total = 0, active = 0, newest_active = 0, stood_in = 0, ends = 0;
  JoinEnd end;

 private:
  class Hook : public JoinHook {
   public:
    explicit Hook(Counter& counter) : counter_(counter) {}
    void main_hook(std::uint32_t what, const JoinRound& round) override {
      EXPECT_GT(round.active, 0);
      ++counter_.stood_in;
      for (std::uint32_t i = 0; i <= what; ++i) counter_.sum(0);
    }
    void post_hook(const JoinEnd& last) override {
      ++counter_.ends;
      counter_.end = last;
    }

   private:
    Counter& counter_;
  };

  int sum(int value) const {
    comm::all_reduce(group_, std::span(&value, 1));
    return value;
  }

  ProcessGroup group_;
};

// The sum of add() if ranks from `first` on have inputs.
int sum_from(int first, int size) {
  int sum = 0;
  for (int r = first; r < size; ++r) sum += 10 * r + 1;
  return sum;
}

// Rank r has 2 * r inputs, so the ranks run out of inputs one after another.
RANKS_TEST(Join, StandsInForRanksWithoutInputs, Ranks(1, 2, 3, 4), EveryBackend()) {
  Counter counter(world());
  int expected = 0;
  join({&counter}, [&] {
    for (int i = 0; i < 2 * rank(); ++i) {
      counter.add();
      const int first = i / 2 + 1;  // the first rank with more than i inputs
      expected += sum_from(first, size());
      EXPECT_EQ(counter.active, size() - first);
    }
  });
  EXPECT_EQ(counter.total, expected);
  EXPECT_EQ(counter.stood_in, 2 * (size() - 1 - rank()));
  EXPECT_EQ(counter.ends, 1);
  EXPECT_EQ(counter.end.is_last_joiner, rank() == size() - 1);
  EXPECT_EQ(counter.end.newest.rank, size() - 1);
  counter.add();  // outside of a join
  EXPECT_EQ(counter.total, expected + sum_from(0, size()));
}

// Several joinables and several kinds of calls, in an order that the waiting ranks cannot know.
RANKS_TEST(Join, StandsInForWhatIsAnnounced, Ranks(2, 3), EveryBackend()) {
  Counter a(world());
  Counter b(world());
  join({&a, &b}, [&] {
    if (rank() != 0) return;
    a.add();
    a.add();
    b.twice();
    a.twice();
    b.add();
  });
  EXPECT_EQ(a.total, rank() == 0 ? 4 : 0);
  EXPECT_EQ(b.total, rank() == 0 ? 3 : 0);
  EXPECT_EQ(a.stood_in, rank() == 0 ? 0 : 3);
  EXPECT_EQ(b.stood_in, rank() == 0 ? 0 : 2);
  EXPECT_EQ(a.end.newest.rank, 0);
  EXPECT_EQ(a.newest_active, 0);
}

RANKS_TEST(Join, EqualLoopsHaveManyLastJoiners, Ranks(1, 2, 4)) {
  Counter counter(world());
  join({&counter}, [&] { counter.twice(); });
  EXPECT_TRUE(counter.end.is_last_joiner);
  EXPECT_EQ(counter.end.newest.rank, size() - 1);
  EXPECT_EQ(counter.newest_active, size() - 1);
}

RANKS_TEST(Join, ThrowsEarlyIfToldTo, Ranks(2, 3, 4), EveryBackend()) {
  Counter counter(world());
  const auto loop = [&] {
    for (int i = 0; i < 3 + (rank() == 1 ? 0 : 5); ++i) counter.twice();
  };
  EXPECT_THAT([&] { join({&counter}, loop, {.throw_on_early_termination = true}); },
              ThrowsMessage<Mismatch>(AllOf(HasSubstr("rank 1 has no more inputs while rank"),
                                            HasSubstr("throw_on_early_termination"))));
  EXPECT_EQ(counter.total, 6 * sum_from(0, size()));
  EXPECT_EQ(counter.ends, 0);
  counter.twice();  // the group is still usable
  EXPECT_EQ(counter.total, 8 * sum_from(0, size()));
}

RANKS_TEST(Join, SaysWhenRanksDiffer, Ranks(2, 3)) {
  Counter counter(world());
  EXPECT_THAT(
      [&] { join({&counter}, [&] { rank() == 1 ? counter.twice() : counter.add(); }); },
      ThrowsMessage<Error>(HasSubstr("rank 0 announced call 0 of joinable 0, rank 1 announced call 1")));
}

RANKS_TEST(Join, ComparesOptions, Ranks(2)) {
  Counter counter(world());
  EXPECT_THAT([&] { join({&counter}, [] {}, {.divide_by_initial_world_size = rank() == 0}); },
              ThrowsMessage<Error>(HasSubstr("rank 1 joined with other options")));
}

RANKS_TEST(Join, IsOffIfDisabled, Ranks(2)) {
  Counter counter(world());
  join({&counter}, [&] { counter.add(); }, {.enable = false});
  EXPECT_EQ(counter.total, sum_from(0, size()));
  EXPECT_EQ(counter.ends, 0);
}

RANKS_TEST(Join, RefusesWhatItCannotJoin, Ranks(1)) {
  Counter counter(world());
  EXPECT_THROW(Join({}), InvalidArgument);
  const Join join({&counter});
  EXPECT_THAT([&] { Join again({&counter}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("already in a join")));
}

// An exception leaves the loop, and the joinable can be joined again.
RANKS_TEST(Join, LetsExceptionsPass, Ranks(1, 2)) {
  Counter counter(world());
  EXPECT_THROW(join({&counter}, [] { throw std::domain_error("no"); }), std::domain_error);
  join({&counter}, [&] { counter.add(); });
  EXPECT_EQ(counter.total, sum_from(0, size()));
}

}  // namespace
}  // namespace lockstep
