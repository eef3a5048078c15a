#include "lockstep/checkpoint/json_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

json through_text(const json& value) {
  return value_from_text(json::parse(value_to_text(value, "v").dump()));
}

TEST(JsonValues, ComeBackFromTextAsTheyWere) {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<json> values = {0.1,
                                    -0.0,
                                    1e308,
                                    5e-324,
                                    infinity,
                                    -infinity,
                                    std::numeric_limits<std::uint64_t>::max(),
                                    "text \u00e4",
                                    nullptr,
                                    true,
                                    json::array(),
                                    json::object(),
                                    {{"float", "NaN"}},
                                    {{"float", {{"float", 3}}}},
                                    {{"float", infinity}},
                                    {{"a", {1, infinity, {{"b", -infinity}}}}, {"float", 2}}};
  for (const json& value : values) EXPECT_EQ(through_text(value), value) << value;
  EXPECT_TRUE(std::signbit(through_text(-0.0).get<double>()));
  EXPECT_TRUE(std::isnan(through_text(std::nan("")).get<double>()));
  EXPECT_TRUE(through_text({{"float", std::nan("")}}).at("float").is_number());
}

TEST(JsonValues, RefuseWhatATextCannotHold) {
  EXPECT_THAT([] { value_to_text("\xff", "v"); }, ThrowsMessage<InvalidArgument>(HasSubstr("\"v\"")));
  EXPECT_THAT([] { value_to_text({{"\xff", 1}}, "v"); }, ThrowsMessage<InvalidArgument>(HasSubstr("UTF-8")));
  EXPECT_THAT([] { value_to_text({json::binary({1})}, "v"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("tensor")));
}

}  // namespace
}  // namespace lockstep
