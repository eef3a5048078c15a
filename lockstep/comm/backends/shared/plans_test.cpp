// The tables that all ranks work by: which way by size, whose slice, whose portion.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/backends/segment/layout.h"
#include "lockstep/comm/backends/shared/part_table.h"
#include "lockstep/comm/backends/shared/passage.h"
#include "lockstep/comm/backends/shared/slices.h"
#include "lockstep/comm/backends/shared/window.h"

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

// Every byte is in exactly one chunk, and what is in the window at a time lies apart, behind the table.
TEST(PassagePlan, PassesEveryByteOnce) {
  for (const int ranks : {2, 3, 4, 7, 64}) {
    for (const bool is_same : {false, true}) {
      const PassagePlan plan = passage_plan(ranks, is_same);
      SCOPED_TRACE(str(ranks, " ranks", is_same ? ", the same for all" : ""));
      EXPECT_GE(plan.head, static_cast<std::size_t>(ranks) * sizeof(Part));
      EXPECT_EQ(plan.portion % LINE, 0U);
      for (const std::size_t total : {std::size_t{0}, std::size_t{1}, plan.portion, 5 * plan.portion + 3}) {
        std::size_t sum = 0;
        for (std::size_t chunk = 0; chunk < plan.chunks(total) + 2; ++chunk)
          sum += plan.bytes_of(chunk, total);
        EXPECT_EQ(sum, total);
      }
      std::vector<std::size_t> places;
      const std::size_t slots = (plan.window_bytes() - plan.head) / plan.slot;
      for (std::size_t chunk = 5; chunk < 5 + slots; ++chunk) {
        for (int to = 0; to < (is_same ? 1 : ranks); ++to) places.push_back(plan.place(chunk, to));
      }
      std::ranges::sort(places);
      EXPECT_GE(places.front(), plan.head);
      for (std::size_t i = 1; i < places.size(); ++i) EXPECT_GE(places[i], places[i - 1] + plan.portion);
      EXPECT_LE(places.back() + plan.portion, plan.window_bytes());
    }
  }
}

}  // namespace
}  // namespace lockstep::shared
