#include "lockstep/os/passed_file.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <optional>

#include "lockstep/base/error.h"
#include "testing/temp_folder.h"

namespace lockstep {
namespace {

TEST(PassedFile, IsOneMemoryForAllWhoOpenIt) {
  const testing::TempFolder folder;
  std::optional<PassedFile> maker(folder.path());
  PassedFile other(folder.path());
  other.open(maker->create(5000));
  const auto mine = maker->map(5000);
  const auto theirs = other.map(5000);
  EXPECT_FALSE(std::filesystem::is_empty(folder.path()));
  maker.reset();
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_EQ(static_cast<char*>(theirs.get())[4999], 0);
  static_cast<char*>(mine.get())[4999] = 'x';
  EXPECT_EQ(static_cast<char*>(theirs.get())[4999], 'x');
}

TEST(PassedFile, NamesWhatIsMissing) {
  const testing::TempFolder folder, elsewhere;
  const auto error_of = [](const auto& body) {
    try {
      body();
    } catch (const SystemError& error) {
      return error.error_number();
    }
    return 0;
  };
  PassedFile maker(folder.path()), other(elsewhere.path()), nowhere(folder / "none");
  const auto ending = maker.create(1);
  EXPECT_EQ(error_of([&] { other.open(ending); }), ENOENT);
  EXPECT_EQ(error_of([&] { nowhere.create(1); }), ENOENT);
}

}  // namespace
}  // namespace lockstep
