#include "lockstep/formats/csv.h"

#include <algorithm>
#include <cstddef>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

class CsvParser {
 public:
  CsvParser(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  std::vector<CsvRow> rows(std::size_t max_rows) {
    std::vector<CsvRow> rows;
    while (at_ < text_.size() && rows.size() < max_rows) rows.push_back(row());
    return rows;
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw FormatError(lockstep::str(in_quotes(path_), " is not a CSV file: line ", line_, ": ", what));
  }

  CsvRow row() {
    CsvRow row;
    for (;;) {
      row.push_back(field());
      if (at_ == text_.size()) return row;
      const char end = text_[at_++];
      if (end == ',') continue;
      if (end == '\r' && at_ < text_.size() && text_[at_] == '\n') ++at_;
      ++line_;
      return row;
    }
  }

  // Reads up to the comma or the line's end.
  std::string field() {
    if (at_ < text_.size() && text_[at_] == '"') return quoted_field();
    const std::size_t end = std::min(text_.find_first_of(",\r\n", at_), text_.size());
    const std::string field(text_.substr(at_, end - at_));
    if (field.find('"') != std::string::npos) fail("a quote in a field without quotes around it");
    at_ = end;
    return field;
  }

  std::string quoted_field() {
    std::string field;
    for (++at_;; ++at_) {
      if (at_ == text_.size()) fail("a quote that is never closed");
      if (text_[at_] == '\n') ++line_;
      const bool doubled = text_[at_] == '"' && at_ + 1 < text_.size() && text_[at_ + 1] == '"';
      if (text_[at_] == '"' && !doubled) break;
      if (doubled) ++at_;
      field += text_[at_];
    }
    ++at_;
    if (at_ < text_.size() && std::string_view(",\r\n").find(text_[at_]) == std::string_view::npos)
      fail("text after a closing quote");
    return field;
  }

  std::string_view text_;
  const std::string& path_;
  std::size_t at_ = 0;
  std::size_t line_ = 1;
};

}  // namespace

std::string csv_line(const CsvRow& fields) {
  std::string line;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (i > 0) line += ',';
    if (fields[i].find_first_of(",\"\r\n") == std::string::npos &&
        !(fields.size() == 1 && fields[i].empty())) {
      line += fields[i];
      continue;
    }
    line += '"';
    for (const char c : fields[i]) line += c == '"' ? std::string("\"\"") : std::string(1, c);
    line += '"';
  }
  return line + "\n";
}

std::vector<CsvRow> parse_csv(std::string_view text, const std::string& path, std::size_t max_rows) {
  return CsvParser(text, path).rows(max_rows);
}

}  // namespace lockstep
