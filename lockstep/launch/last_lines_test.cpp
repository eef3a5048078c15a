#include "lockstep/launch/last_lines.h"

#include <gmock/gmock.h>

#include <utility>

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

TEST(LastLines, KeepsTwenty) {
  LastLines last;
  std::string unfinished;
  for (int i = 0; i < 30; ++i) last.feed(unfinished, std::to_string(i) + "\n");
  EXPECT_THAT(last.lines(), SizeIs(20));
  EXPECT_EQ(last.lines().front(), "10");
  EXPECT_EQ(last.lines().back(), "29");
}

TEST(LastLines, JoinsPiecesOfEachStream) {
  LastLines last;
  std::string out;
  std::string err;
  last.feed(out, "half of ");
  last.feed(err, "error\n");
  last.feed(out, "out\n");
  EXPECT_THAT(last.lines(), ElementsAre("error", "half of out"));
}

TEST(LastLines, KeepsWhatAProgressLineShowedLast) {
  LastLines last;
  std::string unfinished;
  for (int i = 0; i < 5000; ++i) last.feed(unfinished, "\rstep " + std::to_string(i) + "   ");
  last.add(unfinished);
  EXPECT_THAT(last.lines(), ElementsAre("step 4999   "));
}

TEST(LastLines, CutsVeryLongLines) {
  LastLines last;
  std::string unfinished;
  last.feed(unfinished, std::string(100000, 'x') + "\nnext\n");
  EXPECT_THAT(last.lines(), ElementsAre(std::string(LastLines::LONGEST, 'x'), "next"));
}

// The frames of libtorch, gdb and the sanitizers, and Boost.
TEST(LastLines, KeepTheMessageAboveABacktrace) {
  for (const auto& [before, behind] : std::vector<std::pair<std::string, std::string>>{
           {"frame #", ": c10::Error::Error(...) + 0x1d (0x7f in /usr/lib/libc10.so)"},
           {"    #", " 0x7f1 in main a.cpp:3"},
           {" ", "# boost::f() in /usr/lib/libf.so"}}) {
    LastLines last;
    std::string unfinished;
    last.feed(unfinished,
              "epoch 3\nthe message\nException raised from f at g.cpp:1 (most recent call first):\n");
    for (int i = 0; i < 60; ++i) last.feed(unfinished, before + std::to_string(i) + behind + "\n");
    last.feed(unfinished, "\n");
    EXPECT_THAT(last.lines(), ElementsAre("epoch 3", "the message",
                                          "Exception raised from f at g.cpp:1 (most recent call first):",
                                          before + "0" + behind, before + "1" + behind, before + "2" + behind,
                                          "  ... and 57 more frames", ""));
    EXPECT_EQ(last_words(last.lines()), "the message");
  }
}

TEST(LastLines, KeepLinesThatOnlyLookALittleLikeFrames) {
  LastLines last;
  std::string unfinished;
  for (int i = 0; i < 12; ++i)
    last.feed(unfinished, std::to_string(i) + " # of 12\n#" + std::to_string(i) + "\n");
  EXPECT_THAT(last.lines(), SizeIs(20));
  EXPECT_EQ(last.lines().back(), "#11");
  EXPECT_EQ(last_words({}), "");
}

}  // namespace
}  // namespace lockstep
