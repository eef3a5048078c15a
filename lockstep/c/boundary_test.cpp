// What becomes of exceptions at the boundary, and of handles that name nothing.
#include "lockstep/c/boundary.h"

#include <gmock/gmock.h>

#include <new>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/c/handle_table.h"
#include "lockstep/c/lockstep.h"
#include "testing/c_calls.h"

namespace lockstep {
namespace c_boundary_test {

using testing::failed;
using ::testing::HasSubstr;
using testing::ok;

template <typename Exception> int code_of(const Exception& exception) {
  return c::guarded("lockstep_test", [&] { throw exception; });
}

TEST(CBoundary, EveryErrorHasItsCode) {
  EXPECT_TRUE(failed(LOCKSTEP_ERROR_INVALID_ARGUMENT, code_of(InvalidArgument("why")), "why"));
  EXPECT_TRUE(failed(LOCKSTEP_ERROR_TIMEOUT, code_of(Timeout("why")), "why"));
  EXPECT_TRUE(failed(LOCKSTEP_ERROR_PEER_LOST, code_of(PeerLost("why", 3)), "why"));
  EXPECT_TRUE(failed(LOCKSTEP_ERROR_MISMATCH, code_of(Mismatch("why")), "why"));
  EXPECT_TRUE(failed(LOCKSTEP_ERROR_ABORTED, code_of(Aborted("why")), "why"));
  EXPECT_TRUE(failed(LOCKSTEP_ERROR_STORE, code_of(StoreError("why")), "why"));
  EXPECT_TRUE(failed(LOCKSTEP_ERROR_FORMAT, code_of(FormatError("why")), "why"));
  EXPECT_TRUE(failed(LOCKSTEP_ERROR_SYSTEM, code_of(SystemError("why", 2)), "why: No such file"));
  EXPECT_TRUE(failed(LOCKSTEP_ERROR_INTERNAL, code_of(InternalError("why")), "why"));
  EXPECT_TRUE(failed(LOCKSTEP_ERROR_SPAWN, code_of(SpawnError("why", 1, 2)), "why"));
  EXPECT_TRUE(failed(LOCKSTEP_ERROR_BACKEND, code_of(DistBackendError("why")), "why"));
  EXPECT_TRUE(failed(LOCKSTEP_ERROR_OUT_OF_MEMORY, code_of(std::bad_alloc()), "lockstep_test: there is not"));
  EXPECT_TRUE(failed(LOCKSTEP_ERROR_OUT_OF_MEMORY, code_of(std::length_error("long")), "lockstep_test"));
  EXPECT_TRUE(failed(LOCKSTEP_ERROR_INTERNAL, code_of(std::runtime_error("why")), "lockstep_test: why"));
  EXPECT_TRUE(failed(LOCKSTEP_ERROR_INTERNAL, code_of(7), "lockstep_test: an unknown exception"));
  EXPECT_TRUE(failed(LOCKSTEP_ERROR_INTERNAL, code_of(Error(ErrorCode::NONE, "why")), "why"));
  EXPECT_TRUE(failed(LOCKSTEP_ERROR_INVALID_HANDLE, code_of(c::Failure(LOCKSTEP_ERROR_INVALID_HANDLE, "why")),
                     "lockstep_test: why"));
}

TEST(CBoundary, PeerAndErrnoBelongToTheirErrorAlone) {
  code_of(PeerLost("why", 3));
  EXPECT_EQ(lockstep_error_peer(), 3);
  EXPECT_EQ(lockstep_error_number(), 0);
  code_of(SystemError("why", 2));
  EXPECT_EQ(lockstep_error_peer(), -1);
  EXPECT_EQ(lockstep_error_number(), 2);
  code_of(Timeout("why"));
  EXPECT_EQ(lockstep_error_number(), 0);
}

TEST(CBoundary, TheTextIsOfTheThreadsLastFailure) {
  code_of(Timeout("of this thread"));
  EXPECT_EQ(c::guarded("lockstep_test", [] {}), LOCKSTEP_OK);
  std::thread([] {
    EXPECT_STREQ(lockstep_error_text(), "");
    code_of(Timeout("of another"));
    EXPECT_STREQ(lockstep_error_text(), "of another");
  }).join();
  EXPECT_STREQ(lockstep_error_text(), "of this thread");
}

TEST(CBoundary, CodesHaveNames) {
  EXPECT_STREQ(lockstep_code_name(LOCKSTEP_OK), "ok");
  EXPECT_STREQ(lockstep_code_name(LOCKSTEP_ERROR_PEER_LOST), "peer lost");
  EXPECT_STREQ(lockstep_code_name(77), "unknown code");
  std::vector<std::string> names;
  for (int code = 1; code <= LOCKSTEP_ERROR_BACKEND; ++code) names.emplace_back(lockstep_code_name(code));
  for (int code = LOCKSTEP_ERROR_INVALID_HANDLE; code <= LOCKSTEP_ERROR_OUT_OF_MEMORY; ++code)
    names.emplace_back(lockstep_code_name(code));
  EXPECT_THAT(names, ::testing::Each(::testing::Ne("unknown code")));
}

TEST(CBoundary, TheVersionIsTheProjects) {
  EXPECT_THAT(lockstep_version(), ::testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
  EXPECT_EQ(lockstep_c_version(), 1);
}

TEST(CBoundary, OptionsOfAnotherSizeAreRefused) {
  lockstep_init_options options = LOCKSTEP_INIT_OPTIONS;
  options.struct_size = 0;
  EXPECT_TRUE(failed(LOCKSTEP_ERROR_INVALID_ARGUMENT, lockstep_init(&options),
                     "begin them with LOCKSTEP_INIT_OPTIONS"));
  options = LOCKSTEP_INIT_OPTIONS;
  options.timeout_ms = -1;
  EXPECT_TRUE(failed(LOCKSTEP_ERROR_INVALID_ARGUMENT, lockstep_init(&options), "timeout_ms -1 is negative"));
}

TEST(CBoundary, HandlesThatNameNothingSayWhy) {
  c::HandleTable<int> table(c::HandleKind::WORK);
  const auto why = [&](std::int64_t handle) {
    EXPECT_EQ(c::guarded("lockstep_test", [&] { table.get(handle); }), LOCKSTEP_ERROR_INVALID_HANDLE);
    return std::string(lockstep_error_text());
  };
  const std::int64_t first = table.add(5);
  const std::int64_t second = table.add(6);
  EXPECT_EQ(table.get(first), 5);
  EXPECT_EQ(table.take(first), 5);
  EXPECT_THAT(why(first), HasSubstr("was freed"));
  EXPECT_EQ(table.get(second), 6);
  EXPECT_GT(table.add(7), second);  // a number is never used again
  EXPECT_THAT(why(0), HasSubstr("the handle of a work, 0, is null"));
  EXPECT_THAT(why(LOCKSTEP_WORLD), HasSubstr("is LOCKSTEP_WORLD, a group"));
  EXPECT_THAT(why(c::first_handle(c::HandleKind::STORE)), HasSubstr("is one of a store"));
  EXPECT_THAT(why(second + 2), HasSubstr("was never given"));
  EXPECT_THAT(why(-1), HasSubstr("was never given"));
}

// Without a job, and in one process.
TEST(CBoundary, WithoutAJobTheWorldIsNoGroup) {
  int number = 0;
  EXPECT_EQ(lockstep_is_initialized(), 0);
  for (const int code :
       {lockstep_shutdown(), lockstep_barrier(LOCKSTEP_WORLD, nullptr),
        lockstep_rank(LOCKSTEP_WORLD, &number), lockstep_local_rank(&number), lockstep_node_count(&number)}) {
    EXPECT_TRUE(failed(LOCKSTEP_ERROR_NOT_INITIALIZED, code, "call lockstep_init() first"));
  }
}

TEST(CBoundary, TheLogSinkGetsItsContext) {
  std::vector<std::string> lines;
  const auto sink = [](int level, const char* line, void* context) {
    EXPECT_EQ(level, LOCKSTEP_LOG_WARNING);
    static_cast<std::vector<std::string>*>(context)->emplace_back(line);
  };
  EXPECT_TRUE(ok(lockstep_set_log_sink(sink, &lines)));
  log(LogLevel::WARNING, "slow");
  EXPECT_TRUE(ok(lockstep_set_log_sink(nullptr, nullptr)));
  log(LogLevel::WARNING, "slower");
  EXPECT_THAT(lines, ::testing::ElementsAre("slow"));
}

}  // namespace c_boundary_test
}  // namespace lockstep
