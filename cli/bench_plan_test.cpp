#include "cli/bench_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/arguments.h"

namespace lockstep::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(BenchSizes, AreBytesWithUnits) {
  EXPECT_THAT(parse_sizes("8"), ElementsAre(8));
  EXPECT_THAT(parse_sizes("8,1K,25M,1G"), ElementsAre(8, 1024, 26214400, 1073741824));
}

TEST(BenchSizes, RefuseAnythingElseByName) {
  for (const char* text :
       {"", "8,", "0", "-1", "1k", "1KB", "x", "8,,9", "99999999999999999999", "9999999999999G"}) {
    EXPECT_THAT([&] { parse_sizes(text); },
                ThrowsMessage<UsageError>(HasSubstr("a size is a number of bytes")))
        << text;
  }
}

TEST(BenchVerb, IsFoundByName) {
  EXPECT_EQ(parse_verb("all_reduce"), Verb::ALL_REDUCE);
  EXPECT_EQ(parse_verb("all_to_all"), Verb::ALL_TO_ALL);
  EXPECT_THAT([] { parse_verb("allreduce"); },
              ThrowsMessage<UsageError>(
                  ::testing::AllOf(HasSubstr("all_reduce, broadcast"), HasSubstr("\"allreduce\""))));
}

TEST(BenchRows, UseTheFactorsOfNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor(Verb::ALL_REDUCE, 2), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Verb::ALL_REDUCE, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(Verb::ALL_GATHER, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Verb::REDUCE_SCATTER, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Verb::BROADCAST, 4), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Verb::SEND, 2), 1);
}

TEST(BenchRows, SayTimeAndSpeed) {
  const BenchRow row = {1 << 20, 1 << 18, 100, 80, 75};  // 1 MiB in 100 us: 10.486 GB/s
  EXPECT_EQ(text_line(row, Verb::ALL_REDUCE, 4),
            "     1048576       262144       100.00        80.00       10.486       15.729        75.00      "
            "   75.0");
  EXPECT_EQ(header_line().size(), text_line(row, Verb::ALL_REDUCE, 4).size());
  const auto json = nlohmann::json::parse(json_line(row, Verb::ALL_REDUCE, 4, "shm", "shared"));
  EXPECT_EQ(json["verb"], "all_reduce");
  EXPECT_EQ(json["ranks"], 4);
  EXPECT_DOUBLE_EQ(json["algbw_gb_s"].get<double>(), 10.48576);
  EXPECT_DOUBLE_EQ(json["busbw_gb_s"].get<double>(), 15.72864);
  EXPECT_DOUBLE_EQ(json["bound_us"].get<double>(), 75);
  EXPECT_DOUBLE_EQ(json["share_of_bound"].get<double>(), 0.75);
}

TEST(BenchRows, DoWithoutABound) {
  const BenchRow row = {1 << 20, 1 << 18, 100, 80, std::nullopt};
  EXPECT_EQ(text_line(row, Verb::ALL_REDUCE, 4),
            "     1048576       262144       100.00        80.00       10.486       15.729            -      "
            "      -");
  EXPECT_FALSE(nlohmann::json::parse(json_line(row, Verb::SEND, 4, "tcp", "private")).contains("bound_us"));
}

TEST(BenchRounds, AreFewerForLargerSizes) {
  EXPECT_EQ(rounds_for(8), 2000U);
  EXPECT_EQ(rounds_for(std::size_t{1} << 20U), 256U);
  EXPECT_EQ(rounds_for(std::size_t{1} << 30U), 20U);
}

}  // namespace
}  // namespace lockstep::cli
