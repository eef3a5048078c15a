// The hosts of horovodrun: what it takes, what it refuses, and who gets which ranks.
#include "cli/horovodrun/hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/arguments.h"

namespace lockstep::cli {
namespace horovodrun_hosts_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(HorovodHosts, AreHostsWithSlots) {
  EXPECT_EQ(parse_hosts("w0:2,w-1.x:1", "-H"), (std::vector<Host>{{"w0", {0, 1}}, {"w-1.x", {0}}}));
  const auto says = [](const char* text, const char* what) {
    EXPECT_THAT([&] { parse_hosts(text, "-H"); }, ThrowsMessage<UsageError>(HasSubstr(what))) << text;
  };
  says("w0", "-H: \"w0\" is not HOST:SLOTS");
  says("w0:0", "is not HOST:SLOTS");
  says("w0:2x", "is not HOST:SLOTS");
  says(":2", "is not HOST:SLOTS");
  says("-oProxyCommand=x:2", "is not HOST:SLOTS");
  says("w0;reboot:2", "is not HOST:SLOTS");
  says("w0:1,w0:1", "the host \"w0\" is there twice");
  says("", "names no host");
}

TEST(HorovodHosts, AreFilledOneByOne) {
  const std::vector<Host> hosts = {{"w0", {0, 1}}, {"w1", {0, 1}}};
  EXPECT_EQ(first_slots(hosts, 4), hosts);
  EXPECT_EQ(first_slots(hosts, 3), (std::vector<Host>{{"w0", {0, 1}}, {"w1", {0}}}));
  EXPECT_EQ(first_slots(hosts, 2), (std::vector<Host>{{"w0", {0, 1}}}));
  EXPECT_THAT([&] { first_slots(hosts, 5); },
              ThrowsMessage<UsageError>(HasSubstr("-np is 5, but the hosts have 4 slots")));
}

}  // namespace
}  // namespace horovodrun_hosts_test
}  // namespace lockstep::cli
