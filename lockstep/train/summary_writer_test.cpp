// What TensorBoard's own reader sees.
#include "lockstep/train/summary_writer.h"

#include <gmock/gmock.h>

#include <cmath>
#include <ctime>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "testing/python.h"
#include "testing/temp_folder.h"

namespace lockstep {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::TempFolder;

constexpr const char* READ = R"(
import json, sys
try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util import tensor_util
except ImportError as error:
    print(json.dumps({"missing": str(error)}))
    sys.exit()
events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "tensors": 0}, purge_orphaned_data=False).Reload()
print(json.dumps({
    "version": events.file_version,
    "scalars": {tag: [[e.step, str(e.value)] for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]},
    "times": [e.wall_time for tag in events.Tags()["scalars"] for e in events.Scalars(tag)],
    "plugins": {tag: events.SummaryMetadata(tag).plugin_data.plugin_name for tag in events.Tags()["tensors"]},
    "texts": {tag: [[e.step, tensor_util.make_ndarray(e.tensor_proto)[0].decode()] for e in events.Tensors(tag)]
              for tag in events.Tags()["tensors"]}}))
)";

// What the folder holds; {"missing": why} if Python has no TensorBoard.
json seen_by_tensorboard(const std::string& folder) {
  return json::parse(testing::run_python(READ, {folder}));
}

#define SKIP_WITHOUT_TENSORBOARD(seen) \
  if (seen.contains("missing"))        \
  GTEST_SKIP() << "Python has no TensorBoard (" << seen["missing"] << "): run scripts/setup --tests"

TEST(SummaryWriter, IsReadByTensorBoard) {
  const TempFolder folder;
  SummaryWriter writer(folder / "runs/7");
  const std::int64_t large = std::int64_t{1} << 40;
  writer.add_scalar("loss", 0.25, 0);
  writer.add_scalar("loss", 0.1, 300);
  writer.add_scalar("loss", NAN, 301);
  writer.add_scalar("loss", INFINITY, 302);
  writer.add_scalar("loss", -INFINITY, large);
  writer.add_scalar("caf\xc3\xa9/\"lr\"", -2, -1);
  writer.add_text("options", "`--lr 0.1`", 3);
  writer.flush();
  const json seen = seen_by_tensorboard(folder / "runs/7");
  SKIP_WITHOUT_TENSORBOARD(seen);
  EXPECT_EQ(seen["version"], 2);
  // 0.1 as the nearest float32.
  EXPECT_EQ(seen["scalars"],
            json({{"loss",
                   {{0, "0.25"}, {300, "0.10000000149011612"}, {301, "nan"}, {302, "inf"}, {large, "-inf"}}},
                  {"caf\xc3\xa9/\"lr\"", {{-1, "-2.0"}}}}));
  EXPECT_EQ(seen["texts"], json({{"options/text_summary", {{3, "`--lr 0.1`"}}}}));
  EXPECT_EQ(seen["plugins"], json({{"options/text_summary", "text"}}));
  for (const json& time : seen["times"])
    EXPECT_NEAR(time.get<double>(), static_cast<double>(std::time(nullptr)), 600);
}

TEST(SummaryWriter, GoesOnWhereACheckpointWas) {
  const TempFolder folder;
  std::uint64_t saved = 0;
  {
    SummaryWriter writer(folder.path());
    writer.add_scalar("loss", 3, 1);
    saved = writer.size();
    writer.add_scalar("loss", 2, 2);  // after the checkpoint
  }
  std::ofstream(folder / "events.out.tfevents.0.lockstep", std::ios::app) << "torn";
  {
    SummaryWriter writer(folder.path(), saved);
    EXPECT_EQ(writer.size(), saved);
    writer.add_scalar("loss", 2, 2);
    writer.add_scalar("loss", 1, 3);
    EXPECT_EQ(writer.size(), folder.read("events.out.tfevents.0.lockstep").size());
  }
  const json seen = seen_by_tensorboard(folder.path());
  SKIP_WITHOUT_TENSORBOARD(seen);
  EXPECT_EQ(seen["scalars"], json({{"loss", {{1, "3.0"}, {2, "2.0"}, {3, "1.0"}}}}));
}

TEST(SummaryWriter, KeepsTheWholeRecordsOfADamagedFile) {
  const TempFolder folder;
  std::uint64_t saved = 0, first = 0;
  {
    SummaryWriter writer(folder.path());
    writer.add_scalar("loss", 3, 1);
    first = writer.size();
    writer.add_scalar("loss", 2, 2);
    saved = writer.size();
  }
  std::string bytes = folder.read("events.out.tfevents.0.lockstep");
  bytes[bytes.size() - 6] = static_cast<char>(bytes[bytes.size() - 6] ^ 1);
  folder.write("events.out.tfevents.0.lockstep", bytes);
  EXPECT_EQ(SummaryWriter(folder.path(), saved).size(), first);
  folder.write("events.out.tfevents.0.lockstep", "no event file");
  SummaryWriter writer(folder.path(), saved);
  writer.add_scalar("loss", 4, 5);
  const json seen = seen_by_tensorboard(folder.path());
  SKIP_WITHOUT_TENSORBOARD(seen);
  EXPECT_EQ(seen["scalars"], json({{"loss", {{5, "4.0"}}}}));
}

TEST(SummaryWriter, WritesNothingWithoutAFolderAndNamesOneThatItCannotMake) {
  SummaryWriter nothing("");
  nothing.add_scalar("loss", 1, 1);
  nothing.add_text("text", "text", 1);
  nothing.flush();
  EXPECT_EQ(nothing.size(), 0U);
  EXPECT_THAT([] { SummaryWriter("/dev/null/runs"); },
              ::testing::ThrowsMessage<SystemError>(HasSubstr("/dev/null/runs")));
}

}  // namespace
}  // namespace lockstep
