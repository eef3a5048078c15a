#include "lockstep/comm/trace/trace_files.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/comm/trace/trace_memory.h"
#include "testing/temp_folder.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::vector<RankTrace> some_traces() {
  RankTrace trace;
  trace.rank = 3;
  trace.size = 4;
  trace.pid = 4121;
  trace.host = "host";
  trace.job = "a job";
  trace.world = 2;
  trace.process = 'T';
  trace.read_ns = 123456789012345;
  trace.read_at = "2026-11-21 16:02:26 UTC";
  GroupTrace group;
  group.name = "row \"1\"";
  group.backend = "shm";
  group.rank = 1;
  group.members = {1, 3};
  group.failure = "it broke";
  group.calls = 300;
  group.records = {{299,
                    7,
                    {Verb::REDUCE, DType::BFLOAT16, ReduceOp::AVG, Purpose::PROGRAM, 1, 1UL << 40U},
                    0,
                    5,
                    9,
                    CallState::FAILED},
                   {300,
                    0,
                    {Verb::RECV, DType::BOOL, ReduceOp::SUM, Purpose::PROGRAM, ANY_SOURCE, 0},
                    -2,
                    6,
                    0,
                    CallState::POSTED}};
  trace.groups = {group, GroupTrace{"empty", "tcp", 0, {3}, true, "", 0, {}}};
  RankTrace other;
  other.process = 'X';
  return {trace, other};
}

TEST(TraceFiles, AreReadAsTheyWereWritten) {
  const testing::TempFolder folder;
  const std::string path = folder / "trace.json";
  write_trace(path, some_traces());
  const std::vector<RankTrace> read = read_trace_file(path);
  ASSERT_EQ(read.size(), 2U);
  const RankTrace& trace = read[0];
  const RankTrace expected = some_traces()[0];
  EXPECT_EQ(trace.rank, 3);
  EXPECT_EQ(trace.size, 4);
  EXPECT_EQ(trace.pid, 4121);
  EXPECT_EQ(trace.host, "host");
  EXPECT_EQ(trace.job, "a job");
  EXPECT_EQ(trace.world, 2U);
  EXPECT_EQ(trace.process, 'T');
  EXPECT_EQ(trace.read_ns, 123456789012345);
  EXPECT_EQ(trace.read_at, expected.read_at);
  ASSERT_EQ(trace.groups.size(), 2U);
  const GroupTrace& group = trace.groups[0];
  EXPECT_EQ(group.name, "row \"1\"");
  EXPECT_EQ(group.backend, "shm");
  EXPECT_EQ(group.rank, 1);
  EXPECT_EQ(group.members, (std::vector<int>{1, 3}));
  EXPECT_FALSE(group.is_closed);
  EXPECT_EQ(group.failure, "it broke");
  EXPECT_EQ(group.calls, 300U);
  ASSERT_EQ(group.records.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    const TraceRecord& record = group.records[i];
    const TraceRecord& wanted = expected.groups[0].records[i];
    EXPECT_EQ(record.number, wanted.number);
    EXPECT_EQ(record.sequence, wanted.sequence);
    EXPECT_EQ(describe(record.call), describe(wanted.call));
    EXPECT_EQ(record.call.root, wanted.call.root);
    EXPECT_EQ(record.tag, wanted.tag);
    EXPECT_EQ(record.start_ns, wanted.start_ns);
    EXPECT_EQ(record.end_ns, wanted.end_ns);
    EXPECT_EQ(record.state, wanted.state);
  }
  EXPECT_TRUE(trace.groups[1].is_closed);
  EXPECT_EQ(read[1].process, 'X');
}

// One malformed file per check.
TEST(TraceFiles, RefuseWhatIsNone) {
  const std::string good = trace_text(some_traces());
  const auto with = [&](const std::string& what, const std::string& instead) {
    std::string text = good;
    const auto at = text.find(what);
    EXPECT_NE(at, std::string::npos) << what;
    return text.replace(at, what.size(), instead);
  };
  for (const std::string& text :
       {std::string(), std::string("[]"), std::string("{}"), good.substr(0, good.size() / 2),
        with("\"lockstep_trace\":1", "\"lockstep_trace\":2"), with("\"rank\":3", "\"rank\":4"),
        with("\"size\":4", "\"size\":-4"), with("\"rank\":1,\"members\"", "\"rank\":2,\"members\""),
        with("\"reduce\"", "\"reduced\""), with("\"bfloat16\"", "16"), with("\"failed\"", "\"lost\""),
        with("\"start_ns\"", "\"begin_ns\""), with("\"pid\":4121", "\"pid\":\"x\"")}) {
    EXPECT_THAT([&] { parse_trace(text, "some.json"); },
                ThrowsMessage<FormatError>(HasSubstr("\"some.json\" is not a trace file: ")))
        << text;
  }
  EXPECT_NO_THROW(parse_trace(good, "some.json"));
}

TEST(TraceFiles, AnEmptyOneIsNone) {
  const testing::TempFolder folder;
  EXPECT_THAT([&] { read_trace_file(folder.write("empty.json", "")); },
              ThrowsMessage<FormatError>(AllOf(HasSubstr("empty.json"), HasSubstr("is not a trace file"))));
}

// Opening it as a file would wait for a writer for ever.
TEST(TraceFiles, APipeAndAFolderAreRefusedAtOnce) {
  const testing::TempFolder folder;
  ASSERT_EQ(mkfifo((folder / "pipe.json").c_str(), 0600), 0);
  EXPECT_THAT([&] { read_trace_file(folder / "pipe.json"); },
              ThrowsMessage<SystemError>(AllOf(HasSubstr("pipe.json"), HasSubstr("a named pipe"))));
  EXPECT_THAT([&] { read_trace_file(folder.path()); }, ThrowsMessage<SystemError>(HasSubstr("a folder")));
}

mode_t permissions(const std::string& path) {
  struct stat status = {};
  EXPECT_EQ(stat(path.c_str(), &status), 0) << path;
  return status.st_mode & 07777U;
}

TEST(TraceFiles, AreForTheirUserAloneWhateverTheUmask) {
  const testing::TempFolder folder;
  for (const mode_t mask : {0000U, 0022U, 0077U}) {
    const mode_t before = umask(mask);
    const std::string place = folder / std::to_string(mask);
    setenv("LOCKSTEP_TRACE_DIR", (place + "/deep").c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
    const std::string said = TraceMemory::create(/*rank=*/0, /*size=*/1)->write_file();
    unsetenv("LOCKSTEP_TRACE_DIR");  // NOLINT(concurrency-mt-unsafe)
    umask(before);
    EXPECT_EQ(permissions(place), 0700U);
    EXPECT_EQ(permissions(place + "/deep"), 0700U);
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(place + "/deep")) {
      EXPECT_EQ(permissions(entry.path()), 0600U);
      ++files;
    }
    EXPECT_EQ(files, 1) << said;
  }
}

TEST(TraceFiles, ThatAreMissingAreNamed) {
  EXPECT_THAT([] { read_trace_file("/nowhere/trace.json"); },
              ThrowsMessage<SystemError>(AllOf(HasSubstr("/nowhere/trace.json"), HasSubstr("No such file"))));
}

}  // namespace
}  // namespace lockstep
