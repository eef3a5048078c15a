#include "cli/streams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/arguments.h"

namespace lockstep::cli {
namespace {

constexpr int NO_DESCRIPTOR = 0;
constexpr int OUT = StreamChoice::OUT;
constexpr int ERR = StreamChoice::ERR;
constexpr int BOTH = StreamChoice::BOTH;

void expect(const std::string& tee, const std::string& redirects,
            const std::vector<std::pair<int, int>>& shown_and_kept) {
  const auto choices = stream_choices(tee, redirects, static_cast<int>(shown_and_kept.size()));
  ASSERT_EQ(choices.size(), shown_and_kept.size());
  for (std::size_t rank = 0; rank < choices.size(); ++rank) {
    EXPECT_EQ(choices[rank].shown, shown_and_kept[rank].first) << "rank " << rank;
    EXPECT_EQ(choices[rank].kept, shown_and_kept[rank].second) << "rank " << rank;
  }
}

TEST(Streams, WithoutAChoiceEverythingIsShownAndKept) { EXPECT_TRUE(stream_choices("", "", 2).empty()); }

TEST(Streams, RedirectsKeepsInsteadOfShowing) {
  expect("", "3", {{NO_DESCRIPTOR, BOTH}, {NO_DESCRIPTOR, BOTH}});
  expect("", "1", {{ERR, OUT}});
  expect("", "0", {{BOTH, NO_DESCRIPTOR}});
  expect("", "1:2", {{BOTH, NO_DESCRIPTOR}, {OUT, ERR}});
}

TEST(Streams, TeeKeepsAndShows) {
  expect("3", "", {{BOTH, BOTH}});
  expect("1", "", {{BOTH, OUT}});
  expect("0:1", "3", {{OUT, BOTH}, {NO_DESCRIPTOR, BOTH}});
}

TEST(Streams, MistakesAreNamed) {
  for (const char* text : {"4", "-1", "x", "0:4", "2:1", "0:1,1", ":", "1:"}) {
    EXPECT_THROW(stream_choices(text, "", 2), UsageError) << text;
    EXPECT_THROW(stream_choices("", text, 2), UsageError) << text;
  }
}

}  // namespace
}  // namespace lockstep::cli
