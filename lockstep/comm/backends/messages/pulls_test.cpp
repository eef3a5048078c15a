#include "lockstep/comm/backends/messages/pulls.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "testing/vector_link.h"

namespace lockstep::messages {
namespace {

using harness::CountingOwner;
using harness::numbered;
using Outcome = Pulls::Outcome;

class PullsTest : public ::testing::Test {
 protected:
  // A message of this process, which is its own peer.
  std::shared_ptr<Receive> offer(const std::byte* data, std::span<std::byte> buffer,
                                 std::uint32_t transfer = 7) {
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    auto receive = std::make_shared<Receive>(Receive{&owner, 1, 1, 0, buffer, buffer.size()});
    EXPECT_TRUE(pulls.add(transfer, std::as_bytes(std::span(&address, 1)), receive));
    return receive;
  }

  CountingOwner owner;
  Pulls pulls{PeerMemory(getpid(), PeerMemory::introduction())};
};

TEST_F(PullsTest, TheSenderIsToldWhenAllIsHereAndItIsReceivedWhenTheSenderSaysSo) {
  const auto data = numbered((std::size_t{1} << 20U) + 1);
  std::vector<std::byte> buffer(data.size());
  const auto receive = offer(data.data(), buffer);
  int pieces = 0;
  Pulls::Piece last;
  for (; !pulls.empty(); ++pieces) last = pulls.read_piece();
  EXPECT_EQ(pieces, 3);
  EXPECT_EQ(last.outcome, Outcome::TOLD);
  EXPECT_EQ(last.transfer, 7U);
  EXPECT_EQ(last.bytes, data.size());
  EXPECT_EQ(buffer, data);
  EXPECT_EQ(pulls.take_given(8), nullptr);
  EXPECT_EQ(pulls.take_given(7), receive);
  EXPECT_EQ(pulls.take_given(7), nullptr);
}

TEST_F(PullsTest, AMessageThatCannotBeReadIsGivenBack) {
  std::vector<std::byte> buffer(100);
  const auto receive = offer(nullptr, buffer);  // nothing lies at the beginning of memory
  const auto piece = pulls.read_piece();
  EXPECT_EQ(piece.outcome, Outcome::UNREADABLE);
  EXPECT_EQ(piece.receive, receive);
  EXPECT_TRUE(pulls.empty());
}

TEST_F(PullsTest, AForgottenReceiveIsNeitherReadNorGiven) {
  const auto data = numbered(100);
  std::vector<std::byte> buffer(data.size());
  const auto complete = offer(data.data(), buffer, 1);
  pulls.read_piece();
  const auto waiting = offer(data.data(), buffer, 2);
  pulls.forget(*complete);
  pulls.forget(*waiting);
  EXPECT_TRUE(pulls.empty());
  EXPECT_EQ(pulls.take_given(1), nullptr);
}

TEST_F(PullsTest, AnOfferWithoutAnAddressIsRefused) {
  EXPECT_FALSE(pulls.add(1, {}, nullptr));
  const std::uint64_t address = 0;
  EXPECT_FALSE(Pulls(std::nullopt).add(1, std::as_bytes(std::span(&address, 1)), nullptr));
}

}  // namespace
}  // namespace lockstep::messages
