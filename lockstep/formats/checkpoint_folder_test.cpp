#include "lockstep/formats/checkpoint_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/formats/checksum.h"
#include "lockstep/os/folder.h"
#include "testing/temp_folder.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::TempFolder;

const auto ALL = [](std::size_t) { return true; };

// A checkpoint of one tensor in two pieces of four bytes.
void write_checkpoint_into(const std::string& path) {
  make_folders(path);
  CheckpointIndex index;
  index.files = {{"shard", 10, 2, checksum_of("##")}};
  index.items = {{"w", "tensor"}};
  index.tensors["w"] = {
      "U8",
      {8},
      {{0, "w#0", 2, {0}, {4}, checksum_of("abcd")}, {0, "w#4", 6, {4}, {4}, checksum_of("efgh")}}};
  std::ofstream(path + "/shard") << "##abcdefgh";
  std::ofstream(path + "/checkpoint.json") << to_text(index);
}

std::vector<std::int64_t> steps_in(const TempFolder& folder) {
  std::vector<std::int64_t> steps;
  for (const CheckpointEntry& entry : list_checkpoints(folder.path())) steps.push_back(entry.step);
  return steps;
}

TEST(CheckpointFolder, ListsWhatIsCompleteByStep) {
  const TempFolder folder;
  EXPECT_THAT(list_checkpoints(folder / "missing"), IsEmpty());
  for (const std::string name : {"step-000000000900", "step-000000001200", "step-1234567890123",
                                 ".step-000000001300.unfinished", "step-12", "step-00000000090x", "step-",
                                 ".step-000000000800.replaced", ".step-000000000900.replaced", "other"})
    make_folder(folder / name);
  EXPECT_THAT(steps_in(folder), ElementsAre(800, 900, 1200, 1234567890123));
  EXPECT_EQ(latest_checkpoint(folder.path())->step, 1234567890123);
  EXPECT_EQ(list_checkpoints(folder.path())[0].path, folder / ".step-000000000800.replaced");
  EXPECT_EQ(list_checkpoints(folder.path())[1].path, folder / "step-000000000900");
  EXPECT_THAT(abandoned_in(folder.path()),
              ElementsAre(folder / ".step-000000000900.replaced", folder / ".step-000000001300.unfinished"));
  EXPECT_EQ(checkpoint_name(1200), "step-000000001200");
}

TEST(Retention, KeepsTheLastAndMultiplesAndChosenOnes) {
  const std::vector<std::int64_t> steps = {500, 100, 200, 300, 400};
  EXPECT_THAT(steps_to_remove(steps, {}), IsEmpty());
  EXPECT_THAT(steps_to_remove(steps, {.keep_last = 2}), ElementsAre(100, 200, 300));
  EXPECT_THAT(steps_to_remove(steps, {.keep_last = 1, .keep_every = 200}), ElementsAre(100, 300));
  EXPECT_THAT(steps_to_remove(steps, {.keep_last = 1, .keep_every = 200, .keep_steps = {100}}),
              ElementsAre(300));
  EXPECT_THAT(steps_to_remove({7}, {.keep_last = 1}), IsEmpty());
  EXPECT_THROW(steps_to_remove(steps, {.keep_last = 0}), InvalidArgument);
  EXPECT_THROW(steps_to_remove(steps, {.keep_every = 0}), InvalidArgument);
}

TEST(FindDamage, NamesFileAndTensorOfEveryChangedByte) {
  const TempFolder folder;
  const std::string path = folder / "step-000000000001";
  write_checkpoint_into(path);
  const CheckpointIndex index = read_checkpoint_index(path);
  EXPECT_THAT(find_damage(path, index, ALL), IsEmpty());
  for (std::size_t i = 0; i < 8; ++i) {
    std::string bytes = "abcdefgh";
    bytes[i] = 'x';
    std::ofstream(path + "/shard") << "##" << bytes;
    const auto damage = find_damage(path, index, ALL);
    ASSERT_EQ(damage.size(), 1U);
    EXPECT_EQ(damage[0].file, "shard");
    EXPECT_EQ(damage[0].tensor, "w");
    EXPECT_THAT(find_damage(path, index, [&](std::size_t piece) { return piece != i / 4; }), IsEmpty());
  }
  std::ofstream(path + "/shard") << "#?abcdefgh";
  EXPECT_THAT(find_damage(path, index, ALL).at(0).text, HasSubstr("header"));
  std::ofstream(path + "/shard") << "##abcdefg";
  EXPECT_THAT(find_damage(path, index, ALL).at(0).text, HasSubstr("9 bytes"));
  std::filesystem::remove(path + "/shard");
  EXPECT_THAT(find_damage(path, index, ALL).at(0).text, HasSubstr("No such file"));
  std::ofstream(path + "/checkpoint.json") << "{}";
  EXPECT_THAT([&] { read_checkpoint_index(path); },
              ::testing::ThrowsMessage<FormatError>(HasSubstr("step-000000000001/checkpoint.json")));
}

TEST(RemoveCheckpoint, TakesTheNameFirst) {
  const TempFolder folder;
  write_checkpoint_into(folder / "step-000000000001");
  write_checkpoint_into(folder / "step-000000000002");
  remove_checkpoint(list_checkpoints(folder.path())[0]);
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step-000000000002"));
}

}  // namespace
}  // namespace lockstep
