#include "lockstep/comm/collectives/json_bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr double INFINITE = std::numeric_limits<double>::infinity();

TEST(JsonBytes, EveryValueArrivesAsItIs) {
  const std::string not_utf8 = "caf\xe9 \xff\xc1";
  const std::vector<json> values = {
      nullptr,
      true,
      0,
      -1,
      std::numeric_limits<std::int64_t>::min(),
      std::numeric_limits<std::uint64_t>::max(),
      0.1,
      -0.0,
      std::numeric_limits<double>::denorm_min(),
      std::numeric_limits<double>::max(),
      INFINITE,
      -INFINITE,
      "",
      std::string("\0zero", 5),
      not_utf8,
      json::array(),
      json::object(),
      json::binary({1, 2, 255}),
      json::binary({}, 200),
      {{"list", {1, 2.5, "x", nullptr, json::array({json::object()})}}, {not_utf8, {{"", false}}}},
  };
  for (const json& value : values) {
    const json there = json_of(json_bytes(value));
    EXPECT_EQ(there, value);
    EXPECT_EQ(there.is_number_float(), value.is_number_float());
  }
  EXPECT_TRUE(std::signbit(json_of(json_bytes(-0.0)).get<double>()));
  EXPECT_EQ(json_of(json_bytes(json::binary({}, 200))).get_binary().subtype(), 200U);
}

TEST(JsonBytes, NotANumberStaysOne) {
  const json there = json_of(json_bytes({{"loss", NAN}, {"list", {1.5, NAN}}}));
  EXPECT_TRUE(std::isnan(there["loss"].get<double>()));
  EXPECT_EQ(there["list"][0], 1.5);
  EXPECT_TRUE(std::isnan(there["list"][1].get<double>()));
}

TEST(JsonBytes, TextIsReadToo) {
  EXPECT_EQ(json_of("{\"a\": [1, 2]}"), json({{"a", {1, 2}}}));
  EXPECT_EQ(json_of("3"), 3);
}

json nested(int depth) {
  json value = 1;
  for (int i = 0; i < depth; ++i) value = json::array({std::move(value)});
  return value;
}

TEST(JsonBytes, WhatCannotBeSentIsRefused) {
  EXPECT_EQ(json_of(json_bytes(nested(MAX_JSON_DEPTH))), nested(MAX_JSON_DEPTH));
  EXPECT_THAT([] { json_bytes(nested(MAX_JSON_DEPTH + 1)); },
              ThrowsMessage<InvalidArgument>(HasSubstr("nested more than 1000 deep")));
  EXPECT_THAT([] { json_bytes(nested(1'000'000)); },
              ThrowsMessage<InvalidArgument>(HasSubstr("nested more than 1000 deep")));
  EXPECT_THAT(
      [] {
        json_bytes({{"a", json::parse("{", nullptr, /*allow_exceptions=*/false)}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("not JSON")));
  EXPECT_THAT([] { json_bytes(json::binary({1}, 256)); },
              ThrowsMessage<InvalidArgument>(HasSubstr("subtype 256")));
}

TEST(JsonBytes, WhatIsNoValueIsAnErrorAndNoMore) {
  const std::string whole =
      json_bytes({{"list", {1, 2.5, "text", nullptr}}, {"bytes", json::binary({1, 2})}});
  for (std::size_t length = 0; length < whole.size(); ++length)
    EXPECT_THROW(json_of(whole.substr(0, length)), FormatError) << length;
  EXPECT_THROW(json_of(whole + "x"), FormatError);
  EXPECT_THROW(json_of("{\"a\": "), FormatError);
  EXPECT_THROW(json_of("\xc1\xc1"), FormatError);
  // An object with four thousand million entries.
  EXPECT_THROW(json_of("\xc1\xdf\xff\xff\xff\xff"), FormatError);
  EXPECT_THROW(json_of("\xc1\xdd\xff\xff\xff\xff\x01"), FormatError);  // an array with as many
  EXPECT_THROW(json_of("\xc1\xdb\xff\xff\xff\xff"
                       "abc"),
               FormatError);                                             // a string
  EXPECT_THAT([] { json_of("\xc1" + std::string(1'000'000, '\x91')); },  // an array in an array in ...
              ThrowsMessage<FormatError>(HasSubstr("nested more than 1000 deep")));
  EXPECT_THAT([] { json_of(std::string(1'000'000, '[')); },
              ThrowsMessage<FormatError>(HasSubstr("nested more than 1000 deep")));
}

}  // namespace
}  // namespace lockstep::comm
