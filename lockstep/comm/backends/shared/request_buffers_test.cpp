#include "lockstep/comm/backends/shared/request_buffers.h"

#include <gtest/gtest.h>

#include <array>

namespace lockstep::shared {
namespace {

class RequestBuffers : public ::testing::Test {
 protected:
  std::span<std::byte> bytes(std::size_t begin, std::size_t count) {
    return std::span(memory_).subspan(begin, count);
  }
  std::array<std::byte, 100> memory_{};
};

TEST_F(RequestBuffers, DataUnderTheOutputOfAReduceScatterIsOverwritten) {
  Request request;
  request.verb = Verb::REDUCE_SCATTER;
  request.count = 10;
  request.output = bytes(20, 10).data();
  EXPECT_TRUE(is_overwritten(request, 0, bytes(29, 5)));
  EXPECT_TRUE(is_overwritten(request, 0, bytes(10, 11)));
  EXPECT_FALSE(is_overwritten(request, 0, bytes(10, 10)));
  EXPECT_FALSE(is_overwritten(request, 0, bytes(30, 10)));
}

TEST_F(RequestBuffers, ARankMayFindItsOwnPartInPlace) {
  Request request;
  request.verb = Verb::ALL_GATHER;
  request.outputs = {bytes(0, 10), bytes(10, 10)};
  EXPECT_FALSE(is_overwritten(request, 1, bytes(10, 10)));
  EXPECT_TRUE(is_overwritten(request, 0, bytes(10, 10)));
}

TEST_F(RequestBuffers, WhatARankExpectsDependsOnTheVerb) {
  Request request;
  request.dtype = DType::FLOAT32;
  request.count = 3;
  request.verb = Verb::REDUCE_SCATTER;
  EXPECT_EQ(bytes_expected(request, 0, 1), 12);
  request.verb = Verb::BROADCAST;
  request.root = 1;
  EXPECT_EQ(bytes_expected(request, 0, 1), 12);
  EXPECT_EQ(bytes_expected(request, 0, 2), 0);
  EXPECT_EQ(bytes_expected(request, 1, 1), 0);
  request.verb = Verb::ALL_TO_ALL;
  request.outputs = {bytes(0, 10), bytes(10, 20)};
  EXPECT_EQ(bytes_expected(request, 0, 1), 20);
}

TEST_F(RequestBuffers, OnlyARankThatGathersKnowsTheSizeOfTheOthersCalls) {
  Request request;
  request.outputs = {bytes(0, 10), bytes(10, 20)};
  request.verb = Verb::ALL_GATHER;
  EXPECT_EQ(bytes_to_be_posted(request, 0, 1), 20);
  request.verb = Verb::GATHER;
  request.root = 1;
  EXPECT_EQ(bytes_to_be_posted(request, 0, 1), std::nullopt);
  EXPECT_EQ(bytes_to_be_posted(request, 1, 0), 10);
  request.verb = Verb::ALL_TO_ALL;
  EXPECT_EQ(bytes_to_be_posted(request, 0, 1), std::nullopt);
}

}  // namespace
}  // namespace lockstep::shared
