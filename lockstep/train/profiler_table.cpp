// The table of KeyAverages, character for character as Python prints it.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/train/profiler_averages.h"

namespace lockstep {
namespace {

constexpr std::size_t COLUMN = 12;
constexpr std::size_t MAX_NAME = 55;
constexpr std::size_t MAX_SHAPES = 80;

std::string formatted(const char* format, double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

std::string time_text(double microseconds) {
  if (microseconds >= 1e6) return formatted("%.3fs", microseconds / 1e6);
  if (microseconds >= 1e3) return formatted("%.3fms", microseconds / 1e3);
  return formatted("%.3fus", microseconds);
}

std::string share_text(double microseconds, double total) {
  return total == 0 ? "NaN" : formatted("%.2f%%", microseconds * 100.0 / total);
}

std::string memory_text(std::int64_t bytes) {
  constexpr double KB = 1024, MB = KB * KB, GB = KB * MB;
  const auto value = static_cast<double>(bytes);
  if (std::abs(value) >= GB) return formatted("%.2f GB", value / GB);
  if (std::abs(value) >= MB) return formatted("%.2f MB", value / MB);
  if (std::abs(value) >= KB) return formatted("%.2f KB", value / KB);
  return str(bytes, " B");
}

using Value = std::function<double(const FunctionEventAvg&)>;

Value value_of(std::string_view sort_by) {
  using Avg = FunctionEventAvg;
  if (sort_by == "self_cpu_time_total") return [](const Avg& row) { return row.self_cpu_time_total; };
  if (sort_by == "cpu_time_total") return [](const Avg& row) { return row.cpu_time_total; };
  if (sort_by == "cpu_time") return [](const Avg& row) { return row.cpu_time(); };
  if (sort_by == "count") return [](const Avg& row) { return static_cast<double>(row.count); };
  if (sort_by == "cpu_memory_usage")
    return [](const Avg& row) { return static_cast<double>(row.cpu_memory_usage); };
  if (sort_by == "self_cpu_memory_usage")
    return [](const Avg& row) { return static_cast<double>(row.self_cpu_memory_usage); };
  throw InvalidArgument(str("key_averages().table: sort_by is \"", sort_by,
                            "\"; it can be self_cpu_time_total, cpu_time_total, cpu_time, count, "
                            "cpu_memory_usage or self_cpu_memory_usage, or empty"));
}

struct Columns {
  std::vector<std::size_t> widths;

  std::string rule() const {
    std::string line;
    for (const std::size_t width : widths) line += std::string(width, '-') + "  ";
    return line + "\n";
  }
  std::string row(const std::vector<std::string>& cells) const {
    std::string line;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::size_t width = widths[i];
      line += std::string(width - std::min(width, cells[i].size()), ' ') + cells[i] + "  ";
    }
    return line + "\n";
  }
};

std::string name_text(const std::string& name) {
  return name.size() < MAX_NAME - 3 ? name : name.substr(0, MAX_NAME - 3) + "...";
}

}  // namespace

std::string KeyAverages::table(std::string_view sort_by, int row_limit) const {
  std::vector<FunctionEventAvg> rows(begin(), end());
  if (!sort_by.empty()) {
    const Value value = value_of(sort_by);
    std::stable_sort(rows.begin(), rows.end(),
                     [&](const auto& a, const auto& b) { return value(a) > value(b); });
  }
  if (rows.empty()) return "";
  std::size_t name_width = 0, shapes_width = 0;
  double total = 0;
  bool with_shapes = false;
  for (const FunctionEventAvg& row : rows) {
    name_width = std::max(name_width, row.key.size() + 4);
    shapes_width = std::max(shapes_width, row.input_shapes.size() + 4);
    with_shapes = with_shapes || row.input_shapes.size() > 2;
    total += row.self_cpu_time_total;
  }
  Columns columns{{std::min(name_width, MAX_NAME), COLUMN, COLUMN, COLUMN, COLUMN, COLUMN}};
  std::vector<std::string> head = {"Name",        "Self CPU %", "Self CPU",
                                   "CPU total %", "CPU total",  "CPU time avg"};
  const auto add_column = [&](const char* name, std::size_t width) {
    head.emplace_back(name);
    columns.widths.push_back(width);
  };
  if (with_memory_) add_column("CPU Mem", COLUMN);
  if (with_memory_) add_column("Self CPU Mem", COLUMN);
  add_column("# of Calls", COLUMN);
  shapes_width = std::min(shapes_width, MAX_SHAPES);
  if (with_shapes) add_column("Input Shapes", shapes_width);

  std::string text = columns.rule() + columns.row(head) + columns.rule();
  int left = row_limit;
  for (const FunctionEventAvg& row : rows) {
    if (left-- == 0) break;
    std::vector<std::string> cells = {name_text(row.key),
                                      share_text(row.self_cpu_time_total, total),
                                      time_text(row.self_cpu_time_total),
                                      row.is_async ? "0" : share_text(row.cpu_time_total, total),
                                      time_text(row.cpu_time_total),
                                      time_text(row.cpu_time())};
    if (with_memory_) cells.push_back(memory_text(row.cpu_memory_usage));
    if (with_memory_) cells.push_back(memory_text(row.self_cpu_memory_usage));
    cells.push_back(std::to_string(row.count));
    if (with_shapes) cells.push_back(row.input_shapes.substr(0, shapes_width));
    text += columns.row(cells);
  }
  return text + columns.rule() + "Self CPU time total: " + time_text(total) + "\n";
}

}  // namespace lockstep
