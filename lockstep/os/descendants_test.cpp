#include "lockstep/os/descendants.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "lockstep/os/child_process.h"
#include "lockstep/os/pipe.h"

namespace lockstep {
namespace {

using ::testing::IsEmpty;

constexpr std::chrono::seconds KILL_LIMIT{20};

// Starts a script whose processes all hold the write end of a pipe, and waits for its first words.
struct Family {
  explicit Family(const std::string& script) {
    SpawnRequest request;
    request.executable = "/bin/sh";
    request.arguments = {"sh", "-c", script};
    request.environment = {"PATH=/usr/bin:/bin"};
    Pipe pipe = make_pipe();
    request.standard_output = pipe.write.get();
    first = spawn(request).pid;
    pipe.write.reset();
    std::string text;
    read_available(pipe.read.get(), text);
    life = std::move(pipe.read);
  }
  // True once no process holds the pipe.
  bool is_extinct() const {
    std::string text;
    return read_available(life.get(), text) == ReadResult::END;
  }
  pid_t first = 0;
  Fd life;
};

std::vector<pid_t> children_before() {
  adopt_orphans();
  return children_of_this_process();
}

TEST(Descendants, AreKilledHoweverTheyHide) {
  const auto keep = children_before();
  for (const char* script : {
           "echo up; sleep 1000",
           "sleep 1000 & echo up; wait",
           "setsid sleep 1000 & echo up; wait",
           "(setsid sh -c 'trap \"\" TERM HUP INT; (sleep 1000 & echo up; wait)' &) ; sleep 1000",
           "(setsid sleep 1000 & echo up) & exit 0",
       }) {
    const Family family(script);
    EXPECT_THAT(kill_all_children(keep, KILL_LIMIT), IsEmpty()) << script;
    EXPECT_TRUE(family.is_extinct()) << script;
  }
}

TEST(Descendants, LeaveOtherChildrenAlone) {
  const Family other("echo up; sleep 1000");
  const auto keep = children_before();
  const Family family("setsid sleep 1000 & echo up; wait");
  EXPECT_THAT(kill_all_children(keep, KILL_LIMIT), IsEmpty());
  EXPECT_TRUE(family.is_extinct());
  EXPECT_FALSE(poll_exit(other.first).has_value());
  EXPECT_EQ(process_name(other.first), "sh");
  kill_all_children({}, KILL_LIMIT);
  EXPECT_TRUE(other.is_extinct());
}

TEST(Descendants, ThatHaveEndedAreReapedUnlessKept) {
  const auto keep = children_before();
  const Family ended("echo up");
  const Family kept("echo up; exit 5");
  ASSERT_TRUE(ended.is_extinct() && kept.is_extinct());
  std::vector<pid_t> both = keep;
  both.push_back(kept.first);
  const auto has = [](pid_t pid) {
    const auto children = children_of_this_process();
    return std::find(children.begin(), children.end(), pid) != children.end();
  };
  while (has(ended.first)) reap_children(both);  // the child has closed the pipe and ends in a moment
  EXPECT_TRUE(has(kept.first));
  EXPECT_EQ(wait_exit(kept.first).code, 5);
  EXPECT_EQ(process_name(kept.first), "?");
}

}  // namespace
}  // namespace lockstep
