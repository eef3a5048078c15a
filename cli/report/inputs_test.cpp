#include "cli/report/inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "lockstep/base/error.h"
#include "testing/temp_folder.h"

namespace lockstep::cli {
namespace {

using lockstep::testing::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr char PROFILE[] = "{\"schemaVersion\": 1, \"distributedInfo\": {\"rank\": 0}, \"traceEvents\": []}";
constexpr char RECORDER[] = "{\"lockstep_trace\": 1, \"ranks\": []}";

TEST(ReportInputs, AreFoundInAFolderAndOneBelow) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "traces/deeper");
  folder.write("run.jsonl", "{\"step\": 1, \"loss\": 2}\n");
  folder.write("other.csv", "step,loss\n1,2\n");
  folder.write("traces/a.json", PROFILE);
  folder.write("traces/b.json", RECORDER);
  folder.write("traces/deeper/run.jsonl", "broken");
  folder.write("config.json", "{\"model\": 1}");
  folder.write("model.safetensors", std::string("\x10\0\0\0\0\0\0\0{}", 10));
  folder.write(".hidden.jsonl", "broken");
  const ReportInputs inputs = read_inputs({folder.path()});
  ASSERT_EQ(inputs.metrics.size(), 2U);
  EXPECT_EQ(inputs.metrics[0].path, "other.csv");
  EXPECT_EQ(inputs.metrics[1].path, "run.jsonl");
  ASSERT_EQ(inputs.profiles.size(), 1U);
  EXPECT_EQ(inputs.profiles[0].path, "traces/a.json");
  ASSERT_EQ(inputs.recorder_files.size(), 1U);
  EXPECT_EQ(inputs.recorder_files[0], std::pair(std::string("traces/b.json"), std::size_t{0}));
}

TEST(ReportInputs, FilesMayBeNamed) {
  const TempFolder folder;
  const std::string path = folder.write("metrics.txt", "{\"loss\": 2}\n");
  const ReportInputs inputs = read_inputs({path, folder.write("x.trace", PROFILE)});
  ASSERT_EQ(inputs.metrics.size(), 1U);
  EXPECT_EQ(inputs.metrics[0].path, path);
  EXPECT_EQ(inputs.profiles.size(), 1U);
}

TEST(ReportInputs, BrokenOnesAreErrorsThatNameThem) {
  const TempFolder folder;
  const auto refused = [&](const std::string& name, const std::string& text) {
    const std::string path = folder.write(name, text);
    EXPECT_THAT([&] { read_inputs({folder.path()}); }, ThrowsMessage<FormatError>(HasSubstr(path)));
    std::filesystem::remove(path);
  };
  refused("run.jsonl", "{\"loss\": ");
  refused("run.csv", "a,b\n1\n");
  refused("trace_0.json", std::string(PROFILE).substr(0, 70));
  refused("rank0.json", "{\"lockstep_trace\": 2}");
  EXPECT_THAT([&] { read_inputs({folder / "none"}); }, ThrowsMessage<SystemError>(HasSubstr("none")));
}

TEST(ReportInputs, TwoTracesOfOneRankAreOfTwoRuns) {
  const TempFolder folder;
  folder.write("a.json", PROFILE);
  folder.write("b.json", PROFILE);
  EXPECT_THAT(
      [&] { read_inputs({folder.path()}); },
      ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("a.json"), HasSubstr("b.json"), HasSubstr("rank 0"))));
}

}  // namespace
}  // namespace lockstep::cli
