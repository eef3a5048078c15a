// Comma-separated values as RFC 4180 has them: fields with a comma, a quote or a line break stand in quotes.
//
//   csv_line({"epoch", "a \"name\""});      // epoch,"a ""name"""\n
//   parse_csv(text, "run.csv");             // {{"epoch", "a \"name\""}}
//
// Lines end with \n; when read, \r\n ends one as well, and the last one may lack its end.
// Fails       FormatError that names the file and the line: a quote inside a field that has none around it,
//             text after the closing quote, a quote that is never closed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

using CsvRow = std::vector<std::string>;

std::string csv_line(const CsvRow& fields);
// The first `max_rows` rows; what stands behind them is not looked at.
std::vector<CsvRow> parse_csv(std::string_view text, const std::string& path,
                              std::size_t max_rows = SIZE_MAX);

}  // namespace lockstep
