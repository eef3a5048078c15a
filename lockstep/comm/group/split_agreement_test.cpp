#include "lockstep/comm/group/split_agreement.h"

#include <gmock/gmock.h>

#include <cstring>

#include "testing/fake_backend.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Rank 0 of two; rank 1 tells the same but for the bytes in `change`.
class OtherRank final : public lockstep::testing::FakeBackend {
 public:
  OtherRank() : FakeBackend(2) {}

  std::shared_ptr<WorkState> start(Request request) override {
    const auto theirs = request.outputs.at(1);
    auto work = FakeBackend::start(std::move(request));
    if (change) change(theirs);
    return work;
  }

  std::function<void(std::span<std::byte>)> change;
};

TEST(SplitAgreement, RanksThatAskForTheSameTellTheirNumbers) {
  OtherRank backend;
  backend.change = [](std::span<std::byte> ticket) {
    const std::uint64_t number = 9;
    std::memcpy(ticket.last(sizeof(number)).data(), &number, sizeof(number));
  };
  const SplitAgreement all = agree_on_split(backend, {{{0}, {1}}, "rows", {}}, 4);
  EXPECT_FALSE(all.disagreement);
  EXPECT_THAT(all.numbers, ElementsAre(4U, 9U));
}

TEST(SplitAgreement, RanksThatAskForOtherGroupsAreToldBoth) {
  OtherRank backend;
  backend.change = [](std::span<std::byte> ticket) { ticket.front() ^= std::byte{1}; };
  const SplitAgreement all = agree_on_split(backend, {{{0}, {1}}, "rows", {}}, 4);
  ASSERT_TRUE(all.disagreement);
  EXPECT_THAT(*all.disagreement,
              HasSubstr("rank 0 called split \"rows\" of the ranks {0}, {1}, rank 1 called"));
}

// Rank 0 of three. Rank 2 answers with the ticket that it gets, changed by `change`.
class OtherMember final : public lockstep::testing::FakeBackend {
 public:
  OtherMember() : FakeBackend(3) {}

  std::shared_ptr<WorkState> start(Request request) override {
    if (request.verb == Verb::RECV) place = {static_cast<std::byte*>(request.output), request.count};
    if (request.verb == Verb::SEND) {
      std::memcpy(place.data(), request.input, request.count);
      if (change) change(place);
    }
    return FakeBackend::start(std::move(request));
  }

  std::span<std::byte> place;
  std::function<void(std::span<std::byte>)> change;
};

const SplitRequest MEMBERS_ONLY = {{{2, 0}}, "column", {}, SplitRequest::Callers::MEMBERS};

TEST(SplitAgreement, MembersTellEachOtherInMessagesOfTheirOwn) {
  OtherMember backend;
  const SplitAgreement all = agree_on_split(backend, MEMBERS_ONLY, 7);
  EXPECT_FALSE(all.disagreement);
  EXPECT_THAT(all.numbers, ElementsAre(7U, 0U, 7U));
  ASSERT_EQ(backend.started.size(), 2U);
  for (const Request& request : backend.started) {
    EXPECT_TRUE(is_message(request.verb));
    EXPECT_EQ(request.root, 2);
    EXPECT_LT(request.tag, 0);
  }
  await_callers(backend, MEMBERS_ONLY);
  EXPECT_EQ(backend.started.size(), 4U);
}

TEST(SplitAgreement, AMemberThatAsksForAnotherGroupIsNamed) {
  OtherMember backend;
  backend.change = [](std::span<std::byte> ticket) { ticket.front() ^= std::byte{1}; };
  const SplitAgreement all = agree_on_split(backend, MEMBERS_ONLY, 7);
  ASSERT_TRUE(all.disagreement);
  EXPECT_THAT(*all.disagreement,
              HasSubstr("rank 0 called split_over \"column\" of the ranks {2, 0}, rank 2 called split_over"));
}

// Messages show eight pieces of a list. What differs behind them is found, and said to be there.
TEST(SplitAgreement, LongListsAreComparedToTheEnd) {
  std::vector<int> even;
  for (int r = 0; r < 100; r += 2) even.push_back(r);
  OtherRank backend;
  std::vector<std::byte> theirs;
  backend.change = [&](std::span<std::byte> ticket) { theirs.assign(ticket.begin(), ticket.end()); };
  EXPECT_FALSE(agree_on_split(backend, {{even}, "even", {}}, 1).disagreement);
  backend.change = [&](std::span<std::byte> answer) {
    if (answer.size() == theirs.size()) std::copy(theirs.begin(), theirs.end(), answer.begin());
  };
  even.back() = 99;
  const SplitAgreement all = agree_on_split(backend, {{even}, "even", {}}, 1);
  ASSERT_TRUE(all.disagreement);
  EXPECT_THAT(*all.disagreement, HasSubstr("the two differ behind what is shown of them"));
}

TEST(SplitAgreement, ThePartOfARankIsTheOneThatHoldsIt) {
  const std::vector<std::vector<int>> parts = {{0, 2}, {1}};
  EXPECT_EQ(part_of(parts, 2), &parts[0]);
  EXPECT_EQ(part_of(parts, 1), &parts[1]);
  EXPECT_EQ(part_of(parts, 3), nullptr);
}

}  // namespace
}  // namespace lockstep
