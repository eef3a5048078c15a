// Metrics files as tables of numbers: JSON lines and CSV, as MetricsFile writes them and others do. Pure.
//
//   const MetricsTable table = parse_json_lines(text, "run.jsonl");
//   table.x;                                 // "step", else "epoch", else "row"
//   table.curves[0].points;                  // {{0, 2.3}, {100, 0.7}}: x and value
//
// A curve     is a key with numbers, other than "step" and "epoch", and its values over x. NaN and infinity,
//             also as the strings that MetricsFile writes, are points without a finite y.
// Rows        without x, such as the one that ends a run, are `remarks`: keys with their values as text.
// Other keys  without any number (texts, lists, objects) are named in `not_drawn`.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::cli {

struct CurvePoint {
  double x = 0;
  double y = 0;  // may be NaN or infinite
};

struct Curve {
  std::string key;
  std::vector<CurvePoint> points;  // by x
};

struct MetricsTable {
  std::string path;
  std::string x = "row";
  std::size_t rows = 0;
  std::vector<Curve> curves;  // in the order in which the keys come
  std::vector<std::pair<std::string, std::string>> remarks;
  std::vector<std::string> not_drawn;
};

// Throws FormatError that names the file and the line.
MetricsTable parse_json_lines(std::string_view text, const std::string& path);
// The first line names the columns. An empty field means that its row lacks the key.
MetricsTable parse_csv_metrics(std::string_view text, const std::string& path);

}  // namespace lockstep::cli
