#include "lockstep/comm/backends/nccl/calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace lockstep::nccl {
namespace {

using ::testing::HasSubstr;
using Kind = Step::Kind;

std::array<std::byte, 4096> memory;  // NOLINT: only its addresses are used

std::span<std::byte> part(std::size_t begin, std::size_t bytes) {
  return std::span(memory).subspan(begin, bytes);
}

Request request(Verb verb, DType dtype, std::size_t count) {
  Request made;
  made.verb = verb;
  made.dtype = dtype;
  made.count = count;
  made.input = memory.data();
  made.output = memory.data() + 2048;
  return made;
}

TEST(NcclSteps, OneCallForOneBuffer) {
  const auto steps = steps_of(request(Verb::ALL_REDUCE, DType::BFLOAT16, 10), 0, 2);
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_EQ(steps[0].kind, Kind::ALL_REDUCE);
  EXPECT_EQ(steps[0].type, BFLOAT16);
  EXPECT_EQ(steps[0].op, SUM);
  EXPECT_EQ(steps[0].count, 10U);
}

TEST(NcclSteps, WhatOnlyCopiesTravelsAsBytes) {
  Request x = request(Verb::BROADCAST, DType::INT16, 5);
  x.root = 1;
  const auto steps = steps_of(x, 0, 2);
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_EQ(steps[0].kind, Kind::BROADCAST);
  EXPECT_EQ(steps[0].type, UINT8);
  EXPECT_EQ(steps[0].count, 10U);
  EXPECT_EQ(steps[0].rank, 1);
}

TEST(NcclSteps, ComplexNumbersAreTwo) {
  const auto steps = steps_of(request(Verb::ALL_REDUCE, DType::COMPLEX64, 5), 0, 2);
  EXPECT_EQ(steps.at(0).type, FLOAT32);
  EXPECT_EQ(steps.at(0).count, 10U);
}

TEST(NcclSteps, NothingToDoIsNoCall) {
  EXPECT_TRUE(steps_of(request(Verb::ALL_REDUCE, DType::FLOAT32, 0), 0, 2).empty());
  EXPECT_TRUE(steps_of(request(Verb::SEND, DType::FLOAT32, 0), 0, 2).empty());
}

TEST(NcclSteps, AListIsGatheredByABroadcastOfEachRank) {
  Request x = request(Verb::ALL_GATHER, DType::FLOAT32, 4);
  x.outputs = {part(0, 16), part(16, 16), part(100, 8)};
  const auto steps = steps_of(x, 1, 3);
  ASSERT_EQ(steps.size(), 3U);
  for (int r = 0; r < 3; ++r) {
    const Step& step = steps[static_cast<std::size_t>(r)];
    EXPECT_EQ(step.kind, Kind::BROADCAST);
    EXPECT_EQ(step.rank, r);
    EXPECT_EQ(step.output, x.outputs[static_cast<std::size_t>(r)].data());
    EXPECT_EQ(step.count, x.outputs[static_cast<std::size_t>(r)].size());
  }
  EXPECT_EQ(steps[1].input, x.input);
}

// Memory that happens to be adjacent here may not be so on another rank.
TEST(NcclSteps, OnlyWhatIsWholeOnAllRanksIsOneCall) {
  Request x = request(Verb::ALL_GATHER, DType::FLOAT32, 4);
  x.outputs = {part(0, 16), part(16, 16)};
  EXPECT_EQ(steps_of(x, 0, 2).size(), 2U);
  x.is_whole = true;
  ASSERT_EQ(steps_of(x, 0, 2).size(), 1U);
  EXPECT_EQ(steps_of(x, 0, 2)[0].kind, Kind::ALL_GATHER);
  EXPECT_EQ(steps_of(x, 0, 2)[0].count, 16U);
}

TEST(NcclSteps, ReduceScatterOfAList) {
  Request x = request(Verb::REDUCE_SCATTER, DType::FLOAT32, 4);
  x.inputs = {part(0, 16), part(64, 8)};
  const auto steps = steps_of(x, 0, 2);
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[0].kind, Kind::REDUCE);
  EXPECT_EQ(steps[0].output, x.output);
  EXPECT_EQ(steps[1].rank, 1);
  EXPECT_EQ(steps[1].count, 2U);
  EXPECT_EQ(steps[1].output, nullptr);
}

TEST(NcclSteps, AllToAllSendsAndReceivesAlsoFromItself) {
  Request x = request(Verb::ALL_TO_ALL, DType::UINT8, 24);
  x.inputs = {part(0, 8), part(8, 0), part(8, 16)};
  x.outputs = {part(1000, 8), part(1008, 4), part(1012, 1)};
  std::vector<std::pair<Kind, int>> calls;
  for (const Step& step : steps_of(x, 0, 3)) calls.emplace_back(step.kind, step.rank);
  const std::vector<std::pair<Kind, int>> expected = {
      {Kind::SEND, 0}, {Kind::SEND, 2}, {Kind::RECV, 0}, {Kind::RECV, 1}, {Kind::RECV, 2}};
  EXPECT_EQ(calls, expected);
}

TEST(NcclReductions, OfEveryDtypeAndOperator) {
  constexpr std::array OPS = {ReduceOp::SUM, ReduceOp::AVG,  ReduceOp::PRODUCT, ReduceOp::MIN,
                              ReduceOp::MAX, ReduceOp::BAND, ReduceOp::BOR,     ReduceOp::BXOR};
  const auto table = [&](DType dtype) {
    std::string row;
    for (const ReduceOp op : OPS) row += reduction_of(dtype, op) ? 'x' : '-';
    return row;
  };
  for (const DType dtype : {DType::FLOAT64, DType::FLOAT32, DType::FLOAT16, DType::BFLOAT16})
    EXPECT_EQ(table(dtype), "xxxxx---");
  for (const DType dtype :
       {DType::INT8, DType::UINT8, DType::INT32, DType::UINT32, DType::INT64, DType::UINT64})
    EXPECT_EQ(table(dtype), "x-xxx---");
  for (const DType dtype : {DType::INT16, DType::UINT16}) EXPECT_EQ(table(dtype), "--------");
  EXPECT_EQ(table(DType::BOOL), "x-xxxxx-");
  for (const DType dtype : {DType::COMPLEX64, DType::COMPLEX128}) EXPECT_EQ(table(dtype), "xx------");
}

TEST(NcclLacks, NamesWhatItIs) {
  Request x = request(Verb::ALL_REDUCE, DType::INT16, 1);
  EXPECT_THAT(lacks(x), HasSubstr("sum of int16"));
  x = request(Verb::SEND, DType::INT16, 1);
  EXPECT_EQ(lacks(x), "");
  x.tag = 3;
  EXPECT_THAT(lacks(x), HasSubstr("no tags"));
  x = request(Verb::RECV, DType::FLOAT32, 1);
  x.root = ANY_SOURCE;
  EXPECT_THAT(lacks(x), HasSubstr("any rank"));
}

}  // namespace
}  // namespace lockstep::nccl
