// The grammar of NCCL_STAND_IN.
#include "tests/nccl/stand_in_orders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>

namespace lockstep::nccl::stand_in {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

TEST(StandInOrders, NothingIsToldByNoText) {
  const Orders orders = parse_orders("");
  EXPECT_THAT(orders.faults, IsEmpty());
  EXPECT_FALSE(orders.count);
  EXPECT_EQ(orders.version, 22105);
}

TEST(StandInOrders, EveryKind) {
  const Orders orders = parse_orders(
      "fail:all_reduce:3:1,async:broadcast:2,hang:recv:1:*,late:reduce_scatter:2:0:300,progress:send:1,"
      "init:fail:1,init:hang,count:3,version:21000");
  EXPECT_THAT(orders.faults, ElementsAre(Order{Fault::FAIL, Verb::ALL_REDUCE, 3, 1, 0},
                                         Order{Fault::ASYNC, Verb::BROADCAST, 2, std::nullopt, 0},
                                         Order{Fault::HANG, Verb::RECV, 1, std::nullopt, 0},
                                         Order{Fault::LATE, Verb::REDUCE_SCATTER, 2, 0, 300},
                                         Order{Fault::PROGRESS, Verb::SEND, 1, std::nullopt, 0},
                                         Order{Fault::INIT_FAIL, Verb::ALL_REDUCE, 0, 1, 0},
                                         Order{Fault::INIT_HANG, Verb::ALL_REDUCE, 0, std::nullopt, 0}));
  EXPECT_EQ(orders.count, 3);
  EXPECT_EQ(orders.version, 21000);
}

TEST(StandInOrders, WhatIsNoneIsQuoted) {
  for (const char* const text :
       {"fial:all_reduce:1", "fail", "fail:all_reduce", "fail:allreduce:1", "fail:all_reduce:0",
        "fail:all_reduce:1x", "fail:all_reduce:1:-1", "fail:all_reduce:1:1:1", "late:all_reduce:1:1",
        "late:all_reduce:1:1:1:1", "init", "init:late", "init:fail:x", "init:fail:1:1", "count",
        "count:", "count:1:1", "version:new", ":"}) {
    const auto parse = [&] { parse_orders("count:1," + std::string(text) + ",count:2"); };
    EXPECT_THAT(parse,
                ThrowsMessage<std::invalid_argument>(HasSubstr("\"" + std::string(text) + "\" is no order")))
        << text;
  }
  EXPECT_THROW(parse_orders("count:1,"), std::invalid_argument);
}

TEST(StandInOrders, CallsAreCountedForEachVerbAndRank) {
  setenv("NCCL_STAND_IN", "fail:all_reduce:2:1,late:recv:1:*:5,init:hang:2", 1);
  OrderBook book;
  EXPECT_EQ(book.read(), "");
  EXPECT_EQ(book.next(Verb::ALL_REDUCE, 1).fault, Fault::NONE);
  EXPECT_EQ(book.next(Verb::ALL_REDUCE, 0).fault, Fault::NONE);
  EXPECT_EQ(book.next(Verb::ALL_REDUCE, 0).fault, Fault::NONE);
  EXPECT_EQ(book.next(Verb::REDUCE, 1).fault, Fault::NONE);
  EXPECT_EQ(book.read(), "");  // the same text: counting goes on
  EXPECT_EQ(book.next(Verb::ALL_REDUCE, 1).fault, Fault::FAIL);
  EXPECT_EQ(book.next(Verb::ALL_REDUCE, 1).nth, 3);
  EXPECT_EQ(book.next(Verb::RECV, 7).milliseconds, 5);
  EXPECT_EQ(book.at_init(2), Fault::INIT_HANG);
  EXPECT_EQ(book.at_init(1), Fault::NONE);

  setenv("NCCL_STAND_IN", "fail:all_reduce:1", 1);
  EXPECT_EQ(book.read(), "");
  EXPECT_EQ(book.next(Verb::ALL_REDUCE, 1).fault, Fault::FAIL);
  setenv("NCCL_STAND_IN", "nonsense", 1);
  EXPECT_THAT(book.read(), HasSubstr("\"nonsense\" is no order"));
  unsetenv("NCCL_STAND_IN");
}

}  // namespace
}  // namespace lockstep::nccl::stand_in
