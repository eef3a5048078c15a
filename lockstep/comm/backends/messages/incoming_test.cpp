#include "lockstep/comm/backends/messages/incoming.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "testing/vector_link.h"

namespace lockstep::messages {
namespace {

using harness::CountingOwner;
using harness::numbered;
using Found = Incoming::Found;

Header message_of(std::size_t payload) {
  Header header;
  header.kind = Kind::MESSAGE;
  header.payload = static_cast<std::uint32_t>(payload);
  return header;
}

std::vector<std::byte> frame_of(const std::vector<std::byte>& payload) {
  const Header header = message_of(payload.size());
  std::vector<std::byte> bytes(sizeof(Header) + payload.size());
  std::memcpy(bytes.data(), &header, sizeof(Header));
  std::copy(payload.begin(), payload.end(), bytes.begin() + sizeof(Header));
  return bytes;
}

class IncomingTest : public ::testing::Test {
 protected:
  // As many of these bytes as there is space for; whether they are all.
  bool feed(std::span<const std::byte> bytes) {
    const std::span<std::byte> space = incoming.space();
    const std::size_t count = std::min(space.size(), bytes.size());
    std::copy_n(bytes.begin(), count, space.begin());
    incoming.filled(count);
    return count == bytes.size();
  }

  CountingOwner owner;
  Incoming incoming;
};

TEST_F(IncomingTest, CutsWhatComesByteForByteIntoFrames) {
  const auto payload = numbered(50);
  const auto frame = frame_of(payload);
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < frame.size(); ++i) {
      ASSERT_TRUE(feed(std::span(frame).subspan(i, 1)));
      if (i + 1 == sizeof(Header)) {
        ASSERT_EQ(incoming.next(), Found::HEADER);
        EXPECT_EQ(incoming.header().payload, 50U);
        ASSERT_TRUE(incoming.place(nullptr, /*keep=*/true));
      }
      ASSERT_EQ(incoming.next(), i + 1 == frame.size() ? Found::FRAME : Found::NOTHING) << i;
    }
    EXPECT_TRUE(incoming.has_kept());
    EXPECT_EQ(incoming.take_kept(), payload);
    EXPECT_EQ(incoming.next(), Found::NOTHING);
  }
}

TEST_F(IncomingTest, FramesThatComeTogetherAreFoundOneAfterTheOther) {
  auto frames = frame_of(numbered(10));
  const auto second = frame_of(numbered(20));
  frames.insert(frames.end(), second.begin(), second.end());
  ASSERT_TRUE(feed(frames));
  for (const std::size_t size : {10U, 20U}) {
    ASSERT_EQ(incoming.next(), Found::HEADER);
    ASSERT_TRUE(incoming.place(nullptr, /*keep=*/true));
    ASSERT_EQ(incoming.next(), Found::FRAME);
    EXPECT_EQ(incoming.take_kept(), numbered(size));
  }
  EXPECT_EQ(incoming.next(), Found::NOTHING);
}

TEST_F(IncomingTest, APayloadGoesStraightIntoTheBufferThatWaitsForIt) {
  const auto payload = numbered(1000);
  std::vector<std::byte> buffer(payload.size());
  const auto receive = std::make_shared<Receive>(Receive{&owner, 1, 1, 0, buffer, buffer.size()});
  const auto frame = frame_of(payload);
  ASSERT_TRUE(feed(std::span(frame).first(sizeof(Header) + 7)));
  ASSERT_EQ(incoming.next(), Found::HEADER);
  ASSERT_TRUE(incoming.place(receive, /*keep=*/false));
  ASSERT_EQ(incoming.next(), Found::NOTHING);
  EXPECT_EQ(receive->arrived, 7U);
  EXPECT_EQ(incoming.space().data(), &buffer[7]);
  EXPECT_EQ(incoming.space().size(), payload.size() - 7);
  ASSERT_TRUE(feed(std::span(payload).subspan(7)));
  ASSERT_EQ(incoming.next(), Found::FRAME);
  EXPECT_EQ(buffer, payload);
  EXPECT_EQ(incoming.take_receive(), receive);
  EXPECT_GT(owner.moved_, 0);
}

TEST_F(IncomingTest, ACancelledReceiveIsNotWrittenToAndItsPayloadIsDropped) {
  const auto payload = numbered(1000);
  std::vector<std::byte> buffer(payload.size());
  const auto receive = std::make_shared<Receive>(Receive{&owner, 1, 1, 0, buffer, buffer.size()});
  const auto frame = frame_of(payload);
  ASSERT_TRUE(feed(std::span(frame).first(sizeof(Header))));
  ASSERT_EQ(incoming.next(), Found::HEADER);
  ASSERT_TRUE(incoming.place(receive, /*keep=*/false));
  receive->owner = nullptr;
  ASSERT_EQ(incoming.next(), Found::NOTHING);
  ASSERT_TRUE(feed(payload));
  EXPECT_EQ(incoming.next(), Found::FRAME);
  EXPECT_EQ(buffer, std::vector<std::byte>(payload.size()));
}

TEST_F(IncomingTest, APayloadLargerThanItsBufferDoesNotFit) {
  std::vector<std::byte> buffer(9);
  const auto receive = std::make_shared<Receive>(Receive{&owner, 1, 1, 0, buffer, buffer.size()});
  ASSERT_TRUE(feed(frame_of(numbered(10))));
  ASSERT_EQ(incoming.next(), Found::HEADER);
  EXPECT_FALSE(incoming.place(receive, /*keep=*/false));
}

}  // namespace
}  // namespace lockstep::messages
