#include "lockstep/formats/csv.h"

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "testing/python.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const std::vector<CsvRow> ROWS = {
    {"epoch", "a,b", "quo\"te", "two\nlines", ""}, {"1", "", "\r", "caf\xc3\xa9", "\"\""}, {""}};

TEST(Csv, IsReadAsItWasWritten) {
  std::string text;
  for (const CsvRow& row : ROWS) text += csv_line(row);
  EXPECT_EQ(parse_csv(text, "file"), ROWS);
  EXPECT_EQ(csv_line({"epoch", "a \"name\""}), "epoch,\"a \"\"name\"\"\"\n");
}

TEST(Csv, IsReadByPython) {
  const testing::TempFolder folder;
  std::string text;
  for (const CsvRow& row : ROWS) text += csv_line(row);
  const std::string python =
      testing::run_python("import csv, sys; print(list(csv.reader(open(sys.argv[1], newline=''))), end='')",
                          {folder.write("a.csv", text)});
  EXPECT_EQ(
      python,
      "[['epoch', 'a,b', 'quo\"te', 'two\\nlines', ''], ['1', '', '\\r', 'caf\xc3\xa9', '\"\"'], ['']]");
}

TEST(Csv, LinesEndInBothWays) {
  const std::vector<CsvRow> rows = {{"a", "b"}, {"1", "2"}};
  for (const char* text : {"a,b\n1,2\n", "a,b\r\n1,2\r\n", "a,b\n1,2", "\"a\",b\r\n1,\"2\""})
    EXPECT_EQ(parse_csv(text, "file"), rows) << text;
  EXPECT_TRUE(parse_csv("", "file").empty());
}

TEST(Csv, NamesTheLineOfAMistake) {
  for (const char* text : {"a\nb\"c\n", "a\n\"b\"c\n", "a\n\"b"})
    EXPECT_THAT([&] { parse_csv(text, "run.csv"); },
                ThrowsMessage<FormatError>(HasSubstr("\"run.csv\" is not a CSV file: line 2: ")))
        << text;
  EXPECT_EQ(parse_csv("a\n\"b", "run.csv", 1), std::vector<CsvRow>({{"a"}}));
}

}  // namespace
}  // namespace lockstep
