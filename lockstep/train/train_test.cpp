#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/train/mean.h"
#include "lockstep/train/metrics_file.h"
#include "lockstep/train/parameters_sha256.h"
#include "lockstep/train/progress.h"
#include "testing/python.h"
#include "testing/temp_folder.h"

namespace lockstep {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class Capture {
 public:
  std::FILE* file() { return file_; }
  std::string text() {
    std::string all(static_cast<std::size_t>(std::ftell(file_)), '\0');
    std::rewind(file_);
    all.resize(std::fread(all.data(), 1, all.size(), file_));
    return all;
  }
  ~Capture() { std::fclose(file_); }

 private:
  std::FILE* file_ = std::tmpfile();
};

TEST(Progress, SaysStepLossSpeedAndTimeLeft) {
  EXPECT_EQ(progress_text(420, 938, 0.08321, 12839.6, "images", 20.2),
            "step 420/938  loss 0.0832  12840 images/s  0:21 left");
  EXPECT_EQ(progress_text(1, 1, 2, 0, "tokens", 3601), "step 1/1  loss 2.0000  0 tokens/s  60:01 left");
}

TEST(Progress, ATerminalsLineIsWrittenOverAndFits) {
  Capture capture;
  Progress progress(capture.file(), {.total_steps = 1, .columns = 20});
  progress.step(0.5, 64);
  progress.say("epoch 1");
  EXPECT_EQ(capture.text(), "\r\033[Kstep 1/1  loss 0.50\r\033[Kepoch 1\n");
}

TEST(Progress, AFileGetsPlainLines) {
  Capture capture;
  Progress progress(capture.file(),
                    {.total_steps = 2, .columns = 0, .interval = std::chrono::milliseconds(0)});
  progress.step(0.5, 64);
  progress.say("epoch 1");
  Progress tokens(capture.file(),
                  {.total_steps = 1, .unit = "tokens", .interval = std::chrono::milliseconds(0)});
  tokens.step(0.25, 64);
  const std::string text = capture.text();
  EXPECT_THAT(text, ContainsRegex("step 1/2  loss 0.5000  [0-9]+ samples/s"));
  EXPECT_THAT(text, ContainsRegex("step 1/1  loss 0.2500  [0-9]+ tokens/s"));
  EXPECT_THAT(text, HasSubstr("step 1/2  loss 0.5000"));
  EXPECT_THAT(text, HasSubstr("\nepoch 1\n"));
  EXPECT_THAT(text, Not(HasSubstr("\r")));
}

TEST(Progress, OfARunThatGoesOnCountsTheStepsBefore) {
  // 500 steps were done before, 10 more take 10 * SLEEP, so 428 are left and take 428 * SLEEP or a little
  // more.
  constexpr auto SLEEP = std::chrono::milliseconds(20);
  Capture capture;
  Progress progress(capture.file(),
                    {.total_steps = 938, .first_step = 500, .interval = std::chrono::milliseconds(0)});
  for (int step = 0; step < 10; ++step) {
    std::this_thread::sleep_for(SLEEP);
    progress.step(0.5, 64);
  }
  const std::string text = capture.text();
  EXPECT_THAT(text, ::testing::StartsWith("step 501/938  loss 0.5000  "));
  int minutes = -1, seconds = -1;
  ASSERT_EQ(std::sscanf(text.substr(text.rfind("step 510/938")).c_str(),
                        "step 510/938  loss 0.5000 %*f samples/s %d:%d left", &minutes, &seconds),
            2);
  // 10 / 510 of that without first_step: a machine would have to be fifty times too slow to hide it.
  EXPECT_GE(60 * minutes + seconds, 428 * SLEEP / std::chrono::seconds(1));
}

TEST(ParametersSha256, IsThatOfTheDocumentedBytes) {
  // echo of: length 1 "w", length 5 "Float", int64 2, float32 1 and 2; computed with Python's hashlib.
  const at::Tensor w = at::tensor({1.0F, 2.0F});
  EXPECT_EQ(parameters_sha256({{"w", w}}),
            "8217d9e34c8e97b98e79c6eb09644828fa07fb1580a5814a9a7e8b7d805a4f18");
}

TEST(ParametersSha256, SeesEveryBitAndNameAndShape) {
  const at::Tensor w = at::zeros({2, 3});
  const std::string first = parameters_sha256({{"w", w}});
  EXPECT_EQ(parameters_sha256({{"w", w.t().contiguous().t()}}), first);  // strides are no content
  EXPECT_NE(parameters_sha256({{"v", w}}), first);
  EXPECT_NE(parameters_sha256({{"w", w.view({3, 2})}}), first);
  EXPECT_NE(parameters_sha256({{"w", w.to(at::kInt)}}), first);
  w[1][2] = 1e-45F;
  EXPECT_NE(parameters_sha256({{"w", w}}), first);
}

TEST(MetricsFile, NamesAFileThatCannotBeWritten) {
  EXPECT_THAT([] { MetricsFile("/nowhere/at/all"); },
              ::testing::ThrowsMessage<SystemError>(HasSubstr("/nowhere/at/all")));
  MetricsFile nothing("");
  nothing.write({{"epoch", 1}});
}

TEST(MetricsFile, GoesOnWhereACheckpointWas) {
  const testing::TempFolder folder;
  const std::string path = folder / "run.jsonl";
  std::uint64_t saved = 0;
  {
    MetricsFile metrics(path);
    metrics.write({{"epoch", 1}});
    saved = metrics.size();
    metrics.write({{"epoch", 2}});  // after the checkpoint
  }
  std::ofstream(path, std::ios::app) << "{\"epo";  // a line that a kill has torn
  MetricsFile metrics(path, saved);
  EXPECT_EQ(metrics.size(), saved);
  metrics.write({{"epoch", 2}});
  EXPECT_EQ(folder.read("run.jsonl"), "{\"epoch\":1}\n{\"epoch\":2}\n");
  EXPECT_EQ(metrics.size(), folder.read("run.jsonl").size());
}

TEST(MetricsFile, HasWordsForEveryValue) {
  const testing::TempFolder folder;
  const std::string path = folder / "run.jsonl";
  MetricsFile metrics(path);
  metrics.write({{"loss", NAN}, {"losses", {1.5, INFINITY, -INFINITY}}, {"name", "caf\xe9"}});
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  EXPECT_EQ(line,
            "{\"loss\":\"NaN\",\"losses\":[1.5,\"Infinity\",\"-Infinity\"],\"name\":\"caf\xef\xbf\xbd\"}");
}

// The values 1 and 4 with weights 1 and 2: their mean is 3.
TEST(Mean, GoesOnFromItsState) {
  Mean before, after;
  before.add(1);
  after.add(7, 5);
  after.load_state_dict(before.state_dict());
  after.add(4, 2);
  EXPECT_EQ(after.of_this_rank(), 3);
  EXPECT_EQ(after.weight(), 3);
  EXPECT_THROW(after.load_state_dict({{"sum", at::zeros({})}}), InvalidArgument);
}

// The table as Python reads it.
std::string csv_rows(const std::string& path) {
  return testing::run_python(
      "import csv, sys; print(*map(dict, csv.DictReader(open(sys.argv[1], newline=''))), sep='\\n')", {path});
}

TEST(MetricsFile, OfCsvHasColumnsForTheKeysOfTheFirstRow) {
  const testing::TempFolder folder;
  const std::string path = folder / "run.csv";
  MetricsFile metrics(path);
  metrics.write({{"loss", 0.5}, {"epoch", 1}, {"note", "a, \"b\""}});
  metrics.write({{"loss", NAN}, {"epoch", 2}, {"note", nullptr}});
  metrics.write({{"loss", -INFINITY}, {"epoch", 3}});
  EXPECT_EQ(folder.read("run.csv"), "epoch,loss,note\n1,0.5,\"a, \"\"b\"\"\"\n2,NaN,\n3,-Infinity,\n");
  EXPECT_EQ(metrics.size(), 3U);
  EXPECT_EQ(csv_rows(path),
            "{'epoch': '1', 'loss': '0.5', 'note': 'a, \"b\"'}\n{'epoch': '2', 'loss': 'NaN', 'note': ''}\n"
            "{'epoch': '3', 'loss': '-Infinity', 'note': ''}\n");
}

TEST(MetricsFile, OfCsvGetsAColumnForALaterKey) {
  const testing::TempFolder folder;
  MetricsFile metrics(folder / "run.csv");
  metrics.write({{"epoch", 1}});
  metrics.write({{"epoch", 2}, {"best", true}, {"shape", {2, 3}}});
  metrics.write({{"best", "caf\xe9"}});
  EXPECT_EQ(folder.read("run.csv"), "epoch,best,shape\n1,,\n2,true,\"[2,3]\"\n,caf\xef\xbf\xbd,\n");
  EXPECT_THAT(
      [&] {
        metrics.write({1, 2});
      },
      ::testing::ThrowsMessage<InvalidArgument>(HasSubstr("run.csv")));
}

TEST(MetricsFile, OfCsvGoesOnWhereACheckpointWas) {
  const testing::TempFolder folder;
  const std::string path = folder / "run.csv";
  std::uint64_t saved = 0;
  {
    MetricsFile metrics(path);
    metrics.write({{"epoch", 1}, {"note", "two\nlines"}});
    saved = metrics.size();
    metrics.write({{"epoch", 2}, {"new", 7}});  // after the checkpoint, with a column of its own
  }
  std::ofstream(path, std::ios::app) << "3,\"to";  // a line that a kill has torn
  {
    MetricsFile metrics(path, saved);
    EXPECT_EQ(metrics.size(), saved);
    metrics.write({{"epoch", 2}});
    EXPECT_EQ(metrics.size(), saved + 1);
  }
  EXPECT_EQ(folder.read("run.csv"), "epoch,note,new\n1,\"two\nlines\",\n2,,\n");
  MetricsFile(path).write({{"a", 1}});
  EXPECT_EQ(folder.read("run.csv"), "a\n1\n") << "without keep it begins anew";
  folder.write("run.csv", "a\"b\n");
  EXPECT_THAT([&] { MetricsFile(path, 1); }, ::testing::ThrowsMessage<FormatError>(HasSubstr("run.csv")));
}

}  // namespace
}  // namespace lockstep
