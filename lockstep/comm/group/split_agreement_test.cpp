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
  const SplitAgreement all = agree_on_split(backend, {{0}, {1}}, "rows", 4);
  EXPECT_FALSE(all.disagreement);
  EXPECT_THAT(all.numbers, ElementsAre(4U, 9U));
}

TEST(SplitAgreement, RanksThatAskForOtherGroupsAreToldBoth) {
  OtherRank backend;
  backend.change = [](std::span<std::byte> ticket) { ticket.front() ^= std::byte{1}; };
  const SplitAgreement all = agree_on_split(backend, {{0}, {1}}, "rows", 4);
  ASSERT_TRUE(all.disagreement);
  EXPECT_THAT(*all.disagreement,
              HasSubstr("rank 0 called split \"rows\" of the ranks {0}, {1}, rank 1 called"));
}

TEST(SplitAgreement, ThePartOfARankIsTheOneThatHoldsIt) {
  const std::vector<std::vector<int>> parts = {{0, 2}, {1}};
  EXPECT_EQ(part_of(parts, 2), &parts[0]);
  EXPECT_EQ(part_of(parts, 1), &parts[1]);
  EXPECT_EQ(part_of(parts, 3), nullptr);
}

}  // namespace
}  // namespace lockstep
