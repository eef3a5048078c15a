// Whether a folder is in tmpfs, which keeps its files in memory: a test that looks at which pages of a file
// are there has nothing to see. Then it says so.
#pragma once

#include <gtest/gtest.h>
#include <sys/vfs.h>

#include <cstdio>
#include <string>

namespace lockstep::testing {

inline bool is_in_memory(const std::string& folder) {
  constexpr auto TMPFS = 0x01021994;
  struct statfs about = {};
  EXPECT_EQ(::statfs(folder.c_str(), &about), 0);
  if (about.f_type == TMPFS) std::printf("what is in memory is not looked at: %s is tmpfs\n", folder.c_str());
  return about.f_type == TMPFS;
}

}  // namespace lockstep::testing
