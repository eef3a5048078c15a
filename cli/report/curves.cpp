#include "cli/report/curves.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <numeric>

#include "cli/report/svg.h"
#include "lockstep/base/str.h"

namespace lockstep::cli {
namespace {

constexpr int CHART_WIDTH = 470, CHART_HEIGHT = 260;
constexpr std::size_t MOST_POINTS = 800;  // of a line: two for each column of the drawing
constexpr std::size_t MOST_MARKS = 60;    // circles of a line, to point at

std::string series_name(const MetricsTable& table, const std::string& key, bool is_alone) {
  return is_alone ? key : str(key, " (", table.path, ')');
}

struct CurveRange {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void add(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

Axes axes_of(const CurveChart& chart) {
  CurveRange x, y;
  for (const CurveChart::Series& series : chart.series) {
    for (const CurvePoint& point : series.curve->points) {
      x.add(point.x);
      y.add(point.y);
    }
  }
  const double margin = y.high > y.low ? y.high * 0.05 - y.low * 0.05 : 0;
  return {.x = Scale(x.low, x.high, 64, CHART_WIDTH - 16),
          .y = Scale(y.low - margin, y.high + margin, CHART_HEIGHT - 44, 26),
          .x_label = chart.x,
          .y_label = chart.key};
}

std::string line_of(const Axes& axes, const std::vector<CurvePoint>& points, const std::string& css_class) {
  std::string path;
  bool is_pen_down = false;
  for (const CurvePoint& point : points) {
    const bool is_finite = std::isfinite(point.y) && std::isfinite(point.x);
    if (is_finite)
      path += str(is_pen_down ? 'L' : 'M', coordinate(axes.x(point.x)), ' ', coordinate(axes.y(point.y)));
    is_pen_down = is_finite;
  }
  constexpr std::size_t DENSE = 300;
  return str(R"(<path class="line )", points.size() > DENSE ? "dense " : "", css_class, R"(" d=")", path,
             "\"/>\n");
}

// Circles that show their values. Of many points only some get one, and these are invisible.
std::string marks_of(const Axes& axes, const CurveChart& chart, const CurveChart::Series& series,
                     const std::string& css_class) {
  const std::vector<CurvePoint>& points = series.curve->points;
  const std::size_t stride = (points.size() + MOST_MARKS - 1) / MOST_MARKS;
  std::string out;
  for (std::size_t i = 0; i < points.size(); i += stride) {
    const CurvePoint& point = points[i];
    if (!std::isfinite(point.y) || !std::isfinite(point.x)) continue;
    out +=
        str(R"(<circle class=")", stride == 1 ? "" : "hidden ", css_class, R"(" cx=")",
            coordinate(axes.x(point.x)), R"(" cy=")", coordinate(axes.y(point.y)), R"(" r=")",
            stride == 1 ? "2.5" : "5", R"("><title>)",
            escaped(str(series.name, ", ", chart.x, ' ', number_text(point.x), ": ", number_text(point.y))),
            "</title></circle>\n");
  }
  return out;
}

// Lists the values that no line shows.
std::string gaps_of(const CurveChart& chart) {
  std::string out;
  for (const CurveChart::Series& series : chart.series) {
    const auto& points = series.curve->points;
    const auto is_gap = [](const CurvePoint& point) { return !std::isfinite(point.y); };
    const auto first = std::find_if(points.begin(), points.end(), is_gap);
    if (first == points.end()) continue;
    out += str(R"(<p class="warning">)", escaped(series.name), ": ",
               std::count_if(points.begin(), points.end(), is_gap), " of ", points.size(),
               " values are NaN or infinite, the first at ", escaped(chart.x), ' ', number_text(first->x),
               ".</p>\n");
  }
  return out;
}

// Draws lines of few points last, because those of many would hide them.
std::vector<std::size_t> drawing_order(const CurveChart& chart) {
  std::vector<std::size_t> order(chart.series.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return chart.series[a].curve->points.size() > chart.series[b].curve->points.size();
  });
  return order;
}

std::string chart_html(const CurveChart& chart) {
  const Axes axes = axes_of(chart);
  std::string out =
      "<figure>\n" + open_svg(CHART_WIDTH, CHART_HEIGHT, str(chart.key, " over ", chart.x)) + draw(axes);
  std::vector<std::pair<std::string, std::string>> entries;
  for (const CurveChart::Series& series : chart.series)
    entries.emplace_back(series_class(entries.size()), series.name);
  for (const std::size_t i : drawing_order(chart)) {
    const CurveChart::Series& series = chart.series[i];
    out += line_of(axes, thinned(series.curve->points, MOST_POINTS), entries[i].first);
    out += marks_of(axes, chart, series, entries[i].first);
  }
  return out + "</svg>\n" + legend(entries) + gaps_of(chart) + "</figure>\n";
}

std::string curve_row(const MetricsTable& table, const Curve& curve) {
  const CurvePoint *lowest = nullptr, *highest = nullptr;
  for (const CurvePoint& point : curve.points) {
    if (!std::isfinite(point.y)) continue;
    if (lowest == nullptr || point.y < lowest->y) lowest = &point;
    if (highest == nullptr || point.y > highest->y) highest = &point;
  }
  const auto extreme = [&](const CurvePoint* point) {
    return point == nullptr ? std::string("none") : str(number_text(point->y), " at ", number_text(point->x));
  };
  return str("<tr><td>", escaped(table.path), "</td><td>", escaped(curve.key), R"(</td><td class="n">)",
             curve.points.size(), R"(</td><td class="n">)", number_text(curve.points.front().y),
             R"(</td><td class="n">)", number_text(curve.points.back().y), R"(</td><td class="n">)",
             extreme(lowest), R"(</td><td class="n">)", extreme(highest), "</td><td>", escaped(table.x),
             "</td></tr>\n");
}

}  // namespace

std::string chart_key(const std::string& key) {
  for (const std::string_view word : {"train", "training", "test", "val", "valid", "validation", "eval"}) {
    if (key.size() > word.size() + 1 && key.starts_with(word) &&
        (key[word.size()] == '_' || key[word.size()] == '/'))
      return key.substr(word.size() + 1);
  }
  return key;
}

std::vector<CurveChart> charts_of(const std::vector<MetricsTable>& tables) {
  std::vector<CurveChart> charts;
  for (const MetricsTable& table : tables) {
    for (const Curve& curve : table.curves) {
      const std::string key = chart_key(curve.key);
      auto chart = std::find_if(charts.begin(), charts.end(), [&](const CurveChart& other) {
        return other.key == key && other.x == table.x;
      });
      if (chart == charts.end()) chart = charts.insert(chart, {key, table.x, {}});
      chart->series.push_back({series_name(table, curve.key, tables.size() == 1), &curve});
    }
  }
  std::stable_partition(charts.begin(), charts.end(),
                        [](const CurveChart& chart) { return chart.key.find("loss") != std::string::npos; });
  return charts;
}

std::vector<CurvePoint> thinned(const std::vector<CurvePoint>& points, std::size_t limit) {
  if (points.size() <= limit) return points;
  const std::size_t stretches = std::max<std::size_t>(limit / 2, 1);
  std::vector<CurvePoint> out;
  for (std::size_t i = 0; i < stretches; ++i) {
    const auto begin = points.begin() + static_cast<std::ptrdiff_t>(points.size() * i / stretches);
    const auto end = points.begin() + static_cast<std::ptrdiff_t>(points.size() * (i + 1) / stretches);
    const auto is_gap = [](const CurvePoint& point) { return !std::isfinite(point.y); };
    if (const auto gap = std::find_if(begin, end, is_gap); gap != end) {
      out.push_back(*gap);
      continue;
    }
    const auto [low, high] =
        std::minmax_element(begin, end, [](const CurvePoint& a, const CurvePoint& b) { return a.y < b.y; });
    out.push_back(std::min(low, high)[0]);
    if (low != high) out.push_back(std::max(low, high)[0]);
  }
  return out;
}

std::string summary_html(const std::vector<MetricsTable>& tables) {
  std::string rows, remarks;
  for (const MetricsTable& table : tables) {
    for (const Curve& curve : table.curves) rows += curve_row(table, curve);
    for (const auto& [key, text] : table.remarks)
      remarks += str("<tr><td>", escaped(table.path), "</td><td>", escaped(key), "</td><td>", escaped(text),
                     "</td></tr>\n");
  }
  std::string out;
  if (!rows.empty())
    out +=
        "<table><tr><th>file</th><th>metric</th><th>values</th><th>first</th><th>last</th>"
        "<th>lowest</th><th>highest</th><th>over</th></tr>\n" +
        rows + "</table>\n";
  if (!remarks.empty())
    out +=
        "<table><caption>Rows without a step or epoch</caption><tr><th>file</th><th>name</th>"
        "<th>value</th></tr>\n" +
        remarks + "</table>\n";
  return out;
}

std::string curves_html(const std::vector<MetricsTable>& tables) {
  std::string out = "<div class=\"charts\">\n";
  for (const CurveChart& chart : charts_of(tables)) out += chart_html(chart);
  out += "</div>\n";
  for (const MetricsTable& table : tables) {
    if (table.rows == 0) out += str("<p>", escaped(table.path), " has no rows.</p>\n");
    if (table.not_drawn.empty()) continue;
    out += str("<p>Not drawn of ", escaped(table.path), ", because no value is a number:");
    for (const std::string& key : table.not_drawn) out += str(' ', escaped(in_quotes(key)));
    out += ".</p>\n";
  }
  return out;
}

}  // namespace lockstep::cli
