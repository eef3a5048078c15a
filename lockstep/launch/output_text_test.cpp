#include "lockstep/launch/output_text.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace lockstep {
namespace {

TEST(SafeText, KeepsTextTabsAndLettersOfTheWorld) {
  EXPECT_EQ(safe_text("a\tb"), "a\tb");
  EXPECT_EQ(safe_text("\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80"), "\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80");
}

TEST(SafeText, KeepsColoursAndResetsThemAtTheEnd) {
  EXPECT_EQ(safe_text("\x1b[1;31mred"), "\x1b[1;31mred\x1b[0m");
  EXPECT_EQ(safe_text("\x1b[38:5:1mred\x1b[m"), "\x1b[38:5:1mred\x1b[m\x1b[0m");
}

TEST(SafeText, SpellsOutWhatMovesTheCursor) {
  EXPECT_EQ(safe_text("\x1b[2J"), "\\x1b[2J");
  EXPECT_EQ(safe_text("\x1b[1;2H"), "\\x1b[1;2H");
  EXPECT_EQ(safe_text("\x1b[2K"), "\\x1b[2K");
  EXPECT_EQ(safe_text("\x1b"), "\\x1b");
  EXPECT_EQ(safe_text("\x1b["), "\\x1b[");
  EXPECT_EQ(safe_text("\x1b[31"), "\\x1b[31");
  EXPECT_EQ(safe_text("\b\v\f\x7f"), "\\x08\\x0b\\x0c\\x7f");
  EXPECT_EQ(safe_text(std::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(safe_text("\n"), "\\x0a");
}

TEST(SafeText, SpellsOutC1ControlsAndWhatIsNoUtf8) {
  EXPECT_EQ(safe_text("\xc2\x9b"), "\\xc2\\x9b");  // U+009B starts a sequence by itself
  EXPECT_EQ(safe_text("\xc2\xa0"), "\xc2\xa0");    // U+00A0 is a blank
  EXPECT_EQ(safe_text("\x9b"), "\\x9b");
  EXPECT_EQ(safe_text("\xc0\x9b"), "\\xc0\\x9b");           // overlong
  EXPECT_EQ(safe_text("\xe0\x82\x9b"), "\\xe0\\x82\\x9b");  // overlong
  EXPECT_EQ(safe_text("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // half of a surrogate pair
  EXPECT_EQ(safe_text("\xe2\x82"), "\\xe2\\x82");           // cut off
  EXPECT_EQ(safe_text("\xf5\x80\x80\x80"), "\\xf5\\x80\\x80\\x80");
}

TEST(SafeText, PutsThePrefixAfterEveryReturn) { EXPECT_EQ(safe_text("a\rb\rc", "[0] "), "a\r[0] b\r[0] c"); }

// Checks the result like a strict terminal.
bool is_harmless(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == 0x1b) {
      const auto end = text.find_first_not_of("0123456789;:", i + 2);
      if (i + 1 >= text.size() || text[i + 1] != '[' || end == std::string_view::npos) return false;
      if (text[end] != 'm' && !(text[end] == 'K' && end == i + 2)) return false;
      i = end;
    }
    const bool is_control = (byte < 0x20 && byte != 0x1b && byte != '\t' && byte != '\r') || byte == 0x7f;
    const bool is_c1_control = byte == 0xc2 && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    if (is_control || is_c1_control) return false;
  }
  return true;
}

RC_GTEST_PROP(SafeText, IsHarmlessWhateverTheBytes, ()) {
  // The bytes that matter are frequent, so that sequences really form.
  const auto byte =
      rc::gen::oneOf(rc::gen::elementOf(std::string("\x1b\x1b\x1b[[[0123;:mKHJ\r\t\n\xc2\x9b\x80\xe2")),
                     rc::gen::arbitrary<char>());
  const std::string text = *rc::gen::container<std::string>(byte);
  const std::string safe = safe_text(text);
  RC_ASSERT(is_harmless(safe));
  RC_ASSERT(is_harmless(fit_columns(safe, 10)));
}

TEST(FitColumns, CountsCharactersAndNotColours) {
  EXPECT_EQ(fit_columns("abcdef", 3), "abc");
  EXPECT_EQ(fit_columns("\xc3\xa4\xc3\xb6\xc3\xbc", 2), "\xc3\xa4\xc3\xb6");
  EXPECT_EQ(fit_columns("\x1b[31mabc", 2), "\x1b[31mab\x1b[0m");
  EXPECT_EQ(fit_columns("ab", 10), "ab");
  EXPECT_EQ(fit_columns("a\tb", 9), "a\t");
}

}  // namespace
}  // namespace lockstep
