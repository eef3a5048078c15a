// The tables that all ranks work by: which way by size, whose slice, whose portion.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/backends/shared_layout.h"
#include "lockstep/comm/backends/shared_slices.h"
#include "lockstep/comm/backends/shared_window.h"

namespace lockstep::shared {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(PathTable, TakesTheFirstWayWhoseLimitIsNotBelow) {
  const PathTable table = parse_paths("inline:40,one_shot:16K,two_shot:1M,window");
  EXPECT_EQ(table.path_of(0), Path::INLINE);
  EXPECT_EQ(table.path_of(40), Path::INLINE);
  EXPECT_EQ(table.path_of(41), Path::ONE_SHOT);
  EXPECT_EQ(table.path_of(16384), Path::ONE_SHOT);
  EXPECT_EQ(table.path_of(16385), Path::TWO_SHOT);
  EXPECT_EQ(table.path_of(1048577), Path::WINDOW);
  EXPECT_EQ(table.path_of(std::size_t{1} << 40U), Path::WINDOW);
  EXPECT_EQ(describe(table), "inline:40,one_shot:16384,two_shot:1048576,window");
}

TEST(PathTable, NothingLargerThanALineGoesIntoIt) {
  EXPECT_EQ(parse_paths("inline").path_of(PostLine::ROOM), Path::INLINE);
  EXPECT_EQ(parse_paths("inline").path_of(PostLine::ROOM + 1), Path::STAGED);
  EXPECT_EQ(parse_paths("inline:1M,window").path_of(PostLine::ROOM + 1), Path::WINDOW);
}

TEST(PathTable, WhatShipsIsOne) { EXPECT_EQ(parse_paths(SHIPPED_PATHS).path_of(8), Path::INLINE); }

TEST(PathTable, RefusesWhatIsNone) {
  for (const char* text : {"", "fast", "window:1M", "inline,window", "one_shot:1M,two_shot:1K,window",
                           "inline:-1,window", "inline:9999999999999,window", "inline:1G,window", "window,",
                           "inline:1,one_shot:2,two_shot:3,window:4,staged:5,window"}) {
    EXPECT_THAT([&] { parse_paths(text); }, ThrowsMessage<InvalidArgument>(AllOf(
                                                HasSubstr("LOCKSTEP_PATHS"), HasSubstr("must look like"))))
        << text;
  }
}

// Every byte is in exactly one slice.
TEST(SlicePlan, CoversEveryByteOnce) {
  for (const std::size_t total : {1UL, 127UL, 16384UL, 65537UL, 1000003UL, 30000001UL}) {
    for (const int ranks : {1, 2, 3, 4, 7, 64}) {
      const SlicePlan plan = slice_plan(total, ranks);
      std::size_t next = 0;
      for (int r = 0; r < ranks; ++r) {
        for (std::size_t slice = 0; slice < plan.slices_of(r); ++slice) {
          const std::size_t begin = plan.region_begin(r) + slice * plan.slice;
          EXPECT_EQ(begin, next);
          EXPECT_EQ(begin % LINE, 0U);
          next = std::min(plan.region_begin(r + 1), begin + plan.slice);
          EXPECT_GT(next, begin);
        }
      }
      EXPECT_EQ(next, total) << ranks << " ranks";
    }
  }
}

// Every byte is in exactly one portion, and no two of a window's chunks meet in a slot.
TEST(WindowPlan, CoversEveryByteOnce) {
  for (const std::size_t total : {1UL, 8192UL, 1048577UL, 30000001UL}) {
    for (const int ranks : {1, 2, 3, 4, 7}) {
      for (const bool one_chunk : {false, true}) {
        const WindowPlan plan = window_plan(total, ranks, one_chunk);
        std::size_t next = 0;
        for (std::size_t chunk = 0; chunk < plan.chunks; ++chunk) {
          for (int r = 0; r < ranks; ++r) {
            const auto [begin, bytes] = plan.range(chunk, r);
            if (bytes == 0) continue;
            EXPECT_EQ(begin, next);
            next = begin + bytes;
            EXPECT_LE(plan.place(chunk, r) + bytes, plan.window_bytes());
            if (chunk >= plan.slots) EXPECT_EQ(plan.place(chunk, r), plan.place(chunk - plan.slots, r));
          }
        }
        EXPECT_EQ(next, total);
        EXPECT_EQ(plan.chunks == 1, one_chunk || total <= plan.chunk);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::shared
