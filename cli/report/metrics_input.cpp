#include "cli/report/metrics_input.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/formats/csv.h"

namespace lockstep::cli {
namespace {

using nlohmann::ordered_json;

struct MetricsCell {
  std::string key;
  std::string text;  // as the file has it
  std::optional<double> number;
};
using MetricsRow = std::vector<MetricsCell>;

std::optional<double> number_in(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

MetricsCell cell_of(const std::string& key, const ordered_json& value) {
  if (value.is_number()) return {key, value.dump(), value.get<double>()};
  if (value.is_string()) return {key, value.get<std::string>(), number_in(value.get<std::string>())};
  return {key, value.dump(), std::nullopt};
}

const double* find_number(const MetricsRow& row, const std::string& key) {
  for (const MetricsCell& cell : row)
    if (cell.key == key && cell.number) return &*cell.number;
  return nullptr;
}

bool has_number(const std::vector<MetricsRow>& rows, const std::string& key) {
  return std::any_of(rows.begin(), rows.end(),
                     [&](const MetricsRow& row) { return find_number(row, key) != nullptr; });
}

void add_row(MetricsTable& table, const MetricsRow& row, double x) {
  for (const MetricsCell& cell : row) {
    if (!cell.number || cell.key == "step" || cell.key == "epoch") continue;
    auto curve = std::find_if(table.curves.begin(), table.curves.end(),
                              [&](const Curve& other) { return other.key == cell.key; });
    if (curve == table.curves.end()) curve = table.curves.insert(curve, {cell.key, {}});
    curve->points.push_back({x, *cell.number});
  }
}

MetricsTable table_of(const std::vector<MetricsRow>& rows, const std::string& path) {
  MetricsTable table{.path = path, .rows = rows.size()};
  if (has_number(rows, "epoch")) table.x = "epoch";
  if (has_number(rows, "step")) table.x = "step";
  std::set<std::string> without_numbers;
  std::size_t number = 0;
  for (const MetricsRow& row : rows) {
    const auto place = static_cast<double>(++number);
    const double* x = table.x == "row" ? &place : find_number(row, table.x);
    if (x != nullptr) {
      add_row(table, row, *x);
      for (const MetricsCell& cell : row)
        if (!cell.number) without_numbers.insert(cell.key);
    } else {
      for (const MetricsCell& cell : row) table.remarks.emplace_back(cell.key, cell.text);
    }
  }
  for (Curve& curve : table.curves) {
    std::stable_sort(curve.points.begin(), curve.points.end(),
                     [](const CurvePoint& a, const CurvePoint& b) { return a.x < b.x; });
    without_numbers.erase(curve.key);
  }
  table.not_drawn.assign(without_numbers.begin(), without_numbers.end());
  return table;
}

[[noreturn]] void refuse_line(const std::string& path, std::size_t line, const std::string& what) {
  throw FormatError(str(in_quotes(path), " is not a file of JSON lines: line ", line, ": ", what));
}

}  // namespace

MetricsTable parse_json_lines(std::string_view text, const std::string& path) {
  std::vector<MetricsRow> rows;
  for (std::size_t line = 1; !text.empty(); ++line) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view one = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (one.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    try {
      const ordered_json object = ordered_json::parse(one);
      if (!object.is_object()) refuse_line(path, line, "no object");
      MetricsRow row;
      for (const auto& [key, value] : object.items())
        if (!value.is_null()) row.push_back(cell_of(key, value));
      rows.push_back(std::move(row));
    } catch (const ordered_json::exception& error) {
      refuse_line(path, line, printable(error.what()));
    }
  }
  return table_of(rows, path);
}

MetricsTable parse_csv_metrics(std::string_view text, const std::string& path) {
  const std::vector<CsvRow> lines = parse_csv(text, path);
  std::vector<MetricsRow> rows;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const CsvRow& keys = lines[0];
    if (lines[i] == CsvRow{""}) continue;
    if (lines[i].size() != keys.size())
      throw FormatError(str(in_quotes(path), " is not a table: row ", i + 1, " has ", lines[i].size(),
                            " fields, and the first line names ", keys.size(), " columns"));
    MetricsRow row;
    for (std::size_t column = 0; column < keys.size(); ++column) {
      const std::string& field = lines[i][column];
      if (!field.empty()) row.push_back({keys[column], field, number_in(field)});
    }
    rows.push_back(std::move(row));
  }
  return table_of(rows, path);
}

}  // namespace lockstep::cli
