#include "lockstep/formats/safetensors_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "lockstep/base/error.h"
#include "testing/temp_folder.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TempFolder;

constexpr const char* WHOLE =
    R"({"metadata":{"total_size":8,"other":[1,{"x":null}]},"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors","c":"m-1.safetensors"}})";

TEST(SafetensorsIndex, ListsTheFilesBesideIt) {
  const TempFolder folder;
  const SafetensorsIndex index = read_safetensors_index(folder.write("m.index.json", WHOLE));
  ASSERT_EQ(index.size(), 2U);
  EXPECT_THAT(index.at(folder / "m-1.safetensors"), ElementsAre("a", "c"));
  EXPECT_THAT(index.at(folder / "m-2.safetensors"), ElementsAre("b"));
}

TEST(SafetensorsIndex, RefusesEverythingElseByName) {
  const TempFolder folder;
  const auto refuses = [&](const std::string& text, const std::string& defect) {
    const std::string path = folder.write("m.index.json", text);
    try {
      read_safetensors_index(path);
      ADD_FAILURE() << "accepted: " << text;
    } catch (const FormatError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr(path), HasSubstr(defect)));
    }
  };
  refuses("", "it is not JSON");
  refuses("[]", "weight_map must hold");
  refuses("{}", "it has no weight_map");
  refuses(R"({"weight_map":[]})", "weight_map must hold");
  refuses(R"({"weight_map":{"a":1}})", "weight_map must hold");
  refuses(R"({"weight_map":{"a":{}}})", "weight_map must hold");
  refuses(R"({"weight_map":{"a":"x","a":"x"}})", "\"a\" occurs twice");
  refuses(R"({"weight_map":{},"weight_map":{}})", "two weight_maps");
  for (const std::string name : {"../x", "/x", "..", ".", "", "a/b"})
    refuses(R"({"weight_map":{"a":")" + name + "\"}}", "not a file in the index's own folder");
  refuses(R"({"metadata":)" + std::string(100, '['), "nested too deeply");
}

TEST(SafetensorsIndex, ThreeThousandMutantsLoadOrAreRefusedByName) {
  const TempFolder folder;
  const std::string whole = WHOLE;
  std::mt19937 random(23);
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string mutant = whole;
    const std::size_t at = random() % mutant.size();
    if (i % 2 == 0) {
      mutant[at] = static_cast<char>(random());
    } else {
      mutant.insert(at, mutant.substr(random() % mutant.size(), random() % 20));
    }
    const std::string path = folder.write("mutant.json", mutant);
    try {
      for (const auto& [file, names] : read_safetensors_index(path)) {
        EXPECT_EQ(file.rfind('/'), folder.path().size());
        EXPECT_FALSE(names.empty());
      }
    } catch (const FormatError& error) {
      ++refused;
      EXPECT_THAT(error.what(), HasSubstr(path));
    }
  }
  EXPECT_GT(refused, 500);
  EXPECT_LT(refused, 3000);
}

}  // namespace
}  // namespace lockstep
