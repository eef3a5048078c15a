#include "lockstep/launch/output_mux.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>

namespace lockstep {
namespace {

// All output, in order. With `marks`, standard error's parts are in braces.
struct Recorder {
  explicit Recorder(const OutputMuxOptions& options = {})
      : mux(options, [this](Stream stream, std::string_view text) {
          all += text;
          (stream == Stream::OUT ? out : err) += text;
        }) {}
  OutputMux mux;
  std::string all, out, err;
};

TEST(OutputMux, EmitsWholeLinesWithTheirRank) {
  Recorder r;
  r.mux.feed(3, Stream::OUT, "one\ntw");
  r.mux.feed(1, Stream::OUT, "other\n");
  r.mux.feed(3, Stream::OUT, "o\n");
  EXPECT_EQ(r.all, "[3] one\n[1] other\n[3] two\n");
}

TEST(OutputMux, KeepsTheStreamsApart) {
  Recorder r;
  r.mux.feed(0, Stream::OUT, "ou");
  r.mux.feed(0, Stream::ERR, "err\n");
  r.mux.feed(0, Stream::OUT, "t\n");
  EXPECT_EQ(r.out, "[0] out\n");
  EXPECT_EQ(r.err, "[0] err\n");
}

TEST(OutputMux, EmitsTheRestOfALineWhenItsStreamEnds) {
  Recorder r;
  r.mux.feed(0, Stream::OUT, "no newline");
  EXPECT_EQ(r.all, "");
  r.mux.close(0, Stream::OUT);
  r.mux.close(0, Stream::OUT);
  r.mux.close(5, Stream::ERR);
  EXPECT_EQ(r.all, "[0] no newline\n");
}

TEST(OutputMux, KeepsEmptyLinesAndDropsTheReturnBeforeANewline) {
  Recorder r;
  r.mux.feed(0, Stream::OUT, "\r\n\na\r\n");
  EXPECT_EQ(r.all, "[0] \n[0] \n[0] a\n");
}

TEST(OutputMux, LetsNoRankForgeALineOfTheLauncher) {
  Recorder r;
  r.mux.feed(1, Stream::ERR, "x\rlockstep: forged\nlockstep: forged\n");
  r.mux.launcher_line("true");
  EXPECT_EQ(r.err, "[1] x\r[1] lockstep: forged\n[1] lockstep: forged\nlockstep: true\n");
}

TEST(OutputMux, BreaksALineThatNeverEnds) {
  Recorder r;
  const std::string chunk(OutputMux::LONGEST_LINE / 2 + 1, 'x');
  r.mux.feed(0, Stream::OUT, chunk);
  EXPECT_EQ(r.all, "");
  r.mux.feed(0, Stream::OUT, chunk);
  EXPECT_EQ(r.all, "[0] " + std::string(OutputMux::LONGEST_LINE, 'x') + "\n");
  r.mux.close(0, Stream::OUT);
  EXPECT_EQ(r.all.substr(r.all.size() - 7), "[0] xx\n");
}

TEST(OutputMux, ShowsTheUnfinishedLineOfRankZeroOnATerminal) {
  Recorder r({.out_is_terminal = true, .err_is_terminal = true});
  r.mux.feed(0, Stream::OUT, "10%\r");
  r.mux.feed(0, Stream::OUT, "20%\r");
  EXPECT_EQ(r.all, "[0] 10%\r\x1b[K[0] 20%");
  r.all.clear();
  r.mux.feed(1, Stream::OUT, "half");  // another rank's partial line waits
  r.mux.feed(1, Stream::OUT, " line\n");
  r.mux.launcher_line("news");
  EXPECT_EQ(r.all,
            "\r\x1b[K[0] 20%"
            "\r\x1b[K[1] half line\n[0] 20%"
            "\r\x1b[Klockstep: news\n[0] 20%");
  r.all.clear();
  r.mux.feed(0, Stream::OUT, "\n");
  EXPECT_EQ(r.all, "\r\x1b[K[0] 20%\n");
}

TEST(OutputMux, CutsTheUnfinishedLineToTheTerminal) {
  Recorder r({.out_is_terminal = true, .columns = 10});
  r.mux.feed(0, Stream::OUT, "0123456789");
  EXPECT_EQ(r.all, "[0] 01234");
  r.mux.feed(0, Stream::OUT, "\n");
  EXPECT_EQ(r.all, "[0] 01234\r\x1b[K[0] 0123456789\n");
}

TEST(OutputMux, ShowsNothingUnfinishedOnAStreamThatIsNoTerminal) {
  Recorder r({.err_is_terminal = true});
  r.mux.feed(0, Stream::OUT, "10%\r");
  EXPECT_EQ(r.all, "");
  r.mux.feed(0, Stream::ERR, "20%\r");
  EXPECT_EQ(r.err, "[0] 20%");
}

RC_GTEST_PROP(OutputMux, DoesNotDependOnHowTheBytesArrive, ()) {
  const auto byte =
      rc::gen::oneOf(rc::gen::elementOf(std::string("ab\n\r\x1b[m\xc3\xa4")), rc::gen::arbitrary<char>());
  const std::string text = *rc::gen::container<std::string>(byte);
  Recorder whole;
  whole.mux.feed(2, Stream::OUT, text);
  whole.mux.close(2, Stream::OUT);
  Recorder pieces;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t length = *rc::gen::inRange<std::size_t>(1, 5);
    pieces.mux.feed(2, Stream::OUT, std::string_view(text).substr(start, length));
    start += length;
  }
  pieces.mux.close(2, Stream::OUT);
  RC_ASSERT(pieces.all == whole.all);
}

}  // namespace
}  // namespace lockstep
