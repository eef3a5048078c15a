#include "lockstep/launch/last_lines.h"

#include <gmock/gmock.h>

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

}  // namespace
}  // namespace lockstep
