#include "lockstep/comm/backends/messages/call_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/comm/backends/messages/operation.h"

namespace lockstep::messages {
namespace {

using std::chrono::milliseconds;

// Belongs to no group, and is never carried on.
class Idle final : public Operation {
 public:
  Idle(Verb verb, std::uint64_t sequence, bool is_local)
      : Operation(nullptr, request_of(verb), sequence), is_local_(is_local) {}

  std::string describe() const override { return "idle"; }
  bool has_local_parts() const override { return is_local_; }
  bool needs(int) const override { return false; }

 private:
  static Request request_of(Verb verb) {
    Request request;
    request.verb = verb;
    return request;
  }
  void step() override {}

  const bool is_local_;
};

class CallBookTest : public ::testing::Test {
 protected:
  std::shared_ptr<Operation> collective(bool is_local = false) {
    auto operation = std::make_shared<Idle>(Verb::BARRIER, ++last_, is_local);
    book.add(operation);
    return operation;
  }

  static CallBook::Time at(int milliseconds_) { return CallBook::Time(milliseconds(milliseconds_)); }

  CallBook book{2};
  std::uint64_t last_ = 0;
};

TEST_F(CallBookTest, AMessageIsPendingAndNeverQueued) {
  const auto message = std::make_shared<Idle>(Verb::SEND, 0, false);
  book.add(message);
  EXPECT_THAT(book.pending(), ::testing::ElementsAre(message));
  EXPECT_EQ(book.next(), nullptr);
  EXPECT_EQ(book.remove(*message), message);
  EXPECT_EQ(book.remove(*message), nullptr);
}

TEST_F(CallBookTest, CollectivesBeginInOrderAndFewAtOnce) {
  CallBook::Operations all;
  for (int i = 0; i <= CallBook::ACTIVE_LIMIT; ++i) all.push_back(collective());
  for (int i = 0; i < CallBook::ACTIVE_LIMIT; ++i) EXPECT_EQ(book.next(), all[static_cast<std::size_t>(i)]);
  EXPECT_EQ(book.next(), nullptr);
  book.remove(*all[3]);
  EXPECT_EQ(book.next(), all.back());
}

TEST_F(CallBookTest, OneWithPartsWithinTheNodeWaitsForTheOneBefore) {
  const auto first = collective(/*is_local=*/true);
  const auto second = collective(/*is_local=*/true);
  const auto third = collective();
  EXPECT_EQ(book.next(), first);
  EXPECT_EQ(book.next(), nullptr) << "not even the third, which is behind it";
  book.remove(*first);
  EXPECT_EQ(book.next(), second);
  EXPECT_EQ(book.next(), third);
}

TEST_F(CallBookTest, OneThatFailsInTheQueueTakesNobodysPlace) {
  const auto first = collective(/*is_local=*/true);
  const auto second = collective(/*is_local=*/true);
  const auto third = collective(/*is_local=*/true);
  EXPECT_EQ(book.next(), first);
  book.remove(*second);
  EXPECT_EQ(book.next(), nullptr);
  book.remove(*first);
  EXPECT_EQ(book.next(), third);
}

TEST_F(CallBookTest, WhenTheGroupIsOverNothingBegins) {
  const auto first = collective();
  EXPECT_THAT(book.take_all(), ::testing::ElementsAre(first));
  EXPECT_EQ(book.next(), nullptr);
  EXPECT_EQ(book.remove(*first), nullptr);
}

TEST_F(CallBookTest, TheOldestCollectiveIsAnnouncedOnceAfterAWhile) {
  book.add(std::make_shared<Idle>(Verb::SEND, 0, false));
  EXPECT_EQ(book.due_announcement(at(0)), nullptr) << "no collective";
  const auto first = collective();
  const auto second = collective();
  EXPECT_EQ(book.due_announcement(at(100)), nullptr);
  EXPECT_EQ(book.due_announcement(at(119)), nullptr);
  EXPECT_FALSE(book.is_announced(*first));
  EXPECT_EQ(book.due_announcement(at(120)), first.get());
  EXPECT_TRUE(book.is_announced(*first));
  EXPECT_EQ(book.due_announcement(at(200)), nullptr);
  book.remove(*first);
  EXPECT_EQ(book.due_announcement(at(200)), nullptr) << "the wait for the second begins";
  EXPECT_EQ(book.due_announcement(at(220)), second.get());
}

}  // namespace
}  // namespace lockstep::messages
