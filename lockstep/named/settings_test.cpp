// HOROVOD_*: what each variable sets, which values are refused, and that others are named once.
#include "lockstep/named/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep::named {
namespace settings_test {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class NamedSettings : public ::testing::Test {
 protected:
  ~NamedSettings() override {
    for (const std::string& name : set_) ::unsetenv(name.c_str());
    set_log_sink(nullptr);
  }
  void set(const std::string& name, const char* value) {
    ::setenv(name.c_str(), value, 1);
    set_.push_back(name);
  }
  std::vector<std::string>& logged() {
    set_log_sink([this](LogLevel, const std::string& line) { lines_.push_back(line); });
    return lines_;
  }

 private:
  std::vector<std::string> set_, lines_;
};

TEST_F(NamedSettings, HaveHorovodsDefaults) {
  const Settings settings = settings_of_environment();
  EXPECT_EQ(settings.fusion_threshold, 134217728U);
  EXPECT_EQ(settings.cycle_time, 2500us);
  EXPECT_EQ(settings.cache_capacity, 1024U);
  EXPECT_EQ(settings.stall_check, 60s);
  EXPECT_EQ(settings.stall_shutdown, 0s);
  EXPECT_EQ(settings.timeline, "");
}

TEST_F(NamedSettings, AreThoseOfTheVariables) {
  set("HOROVOD_FUSION_THRESHOLD", "0");
  set("HOROVOD_CYCLE_TIME", "3.5");
  set("HOROVOD_CACHE_CAPACITY", "7");
  set("HOROVOD_STALL_CHECK_TIME_SECONDS", "2");
  set("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "5");
  set("HOROVOD_TIMELINE", "t.json");
  set("HOROVOD_TIMELINE_MARK_CYCLES", "1");
  const Settings settings = settings_of_environment();
  EXPECT_EQ(settings.fusion_threshold, 0U);
  EXPECT_EQ(settings.cycle_time, 3500us);
  EXPECT_EQ(settings.cache_capacity, 7U);
  EXPECT_EQ(settings.stall_check, 2s);
  EXPECT_EQ(settings.stall_shutdown, 5s);
  EXPECT_EQ(settings.timeline, "t.json");
  EXPECT_TRUE(settings.timeline_marks_cycles);
  set("HOROVOD_STALL_CHECK_DISABLE", "1");
  EXPECT_EQ(settings_of_environment().stall_check, 0s);
}

TEST_F(NamedSettings, AShutdownBeforeTheWarningIsIgnored) {
  set("HOROVOD_STALL_CHECK_TIME_SECONDS", "5");
  set("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "2");
  auto& lines = logged();
  EXPECT_EQ(settings_of_environment().stall_shutdown, 0s);
  EXPECT_THAT(lines, ::testing::Contains(HasSubstr("is ignored")));
}

TEST_F(NamedSettings, RefuseWhatIsNoNumber) {
  set("HOROVOD_CYCLE_TIME", "soon");
  EXPECT_THAT([] { settings_of_environment(); },
              ThrowsMessage<InvalidArgument>(HasSubstr("HOROVOD_CYCLE_TIME=\"soon\" must be a number")));
  set("HOROVOD_CYCLE_TIME", "1");
  set("HOROVOD_FUSION_THRESHOLD", "-1");
  EXPECT_THAT([] { settings_of_environment(); },
              ThrowsMessage<InvalidArgument>(HasSubstr("HOROVOD_FUSION_THRESHOLD=\"-1\"")));
}

TEST_F(NamedSettings, NameVariablesWithoutACounterpart) {
  set("HOROVOD_AUTOTUNE", "1");
  set("HOROVOD_THREAD_AFFINITY", "0,1");
  auto& lines = logged();
  name_variables_without_counterpart();
  EXPECT_THAT(lines, ElementsAre(::testing::AllOf(HasSubstr("HOROVOD_AUTOTUNE"),
                                                  HasSubstr("HOROVOD_THREAD_AFFINITY"))));
}

}  // namespace
}  // namespace settings_test
}  // namespace lockstep::named
