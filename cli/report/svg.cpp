#include "cli/report/svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "lockstep/base/str.h"

namespace lockstep::cli {
namespace {

constexpr std::size_t SERIES_COLOURS = 6;

std::string formatted(const char* format, double value) {
  std::array<char, 64> text{};
  const int length = std::snprintf(text.data(), text.size(), format, value);
  return {text.data(), static_cast<std::size_t>(std::max(length, 0))};
}

}  // namespace

std::string escaped(std::string_view text) { return escaped_whole(printable(text)); }

std::string escaped_whole(std::string_view text) {
  std::string out;
  for (const char c : printable(text, text.size())) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return formatted("%.6g", value);
}

std::string ms_number(double nanoseconds) {
  const double ms = nanoseconds / 1e6;
  if (ms == 0) return "0";
  const double size = std::abs(ms);
  if (size < 0.1) return formatted("%.4f", ms);
  if (size < 1) return formatted("%.3f", ms);
  if (size < 10) return formatted("%.2f", ms);
  return formatted(size < 100 ? "%.1f" : "%.0f", ms);
}

std::string ms_text(double nanoseconds) { return ms_number(nanoseconds) + " ms"; }

std::string coordinate(double value) {
  std::string text = formatted("%.2f", value);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

Scale::Scale(double low, double high, double from, double to) : low_(low), high_(high), from_(from), to_(to) {
  if (!std::isfinite(low_) || !std::isfinite(high_) || low_ > high_) {
    low_ = 0;
    high_ = 1;
  }
  if (low_ == high_) {
    const double margin = low_ == 0 ? 1 : std::abs(low_) / 10;
    low_ -= margin;
    high_ += margin;
  }
}

double Scale::operator()(double value) const {
  // Halves do not overflow. A value far outside stays a number that a drawing can contain.
  const double share = (value / 2 - low_ / 2) / (high_ / 2 - low_ / 2);
  return from_ + std::clamp(share, -1.0, 2.0) * (to_ - from_);
}

std::vector<double> Scale::ticks(int count) const {
  const double raw = (high_ / 2 - low_ / 2) / count * 2;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  // The round step that is nearest on a logarithmic scale: limits are geometric means of neighbours.
  double step = power;
  for (const auto& [limit, factor] : {std::pair(1.414, 2.0), std::pair(3.162, 5.0), std::pair(7.071, 10.0)})
    if (raw / power >= limit) step = factor * power;
  std::vector<double> out;
  const double first = std::ceil(low_ / step - 1e-9);
  for (int i = 0; i <= 2 * count; ++i) {
    const double value = (first + i) * step;
    if (value > high_ + step * 1e-9) break;
    out.push_back(std::abs(value) < step * 1e-9 ? 0 : value);
  }
  return out;
}

std::string open_svg(int width, int height, std::string_view label) {
  return str(R"(<svg viewBox="0 0 )", width, ' ', height, R"(" width=")", width, R"(" height=")", height,
             R"(" role="img" aria-label=")", escaped(label), "\">\n");
}

std::string svg_text(double x, double y, std::string_view attributes, std::string_view text) {
  return str(R"(<text x=")", coordinate(x), R"(" y=")", coordinate(y), R"(" )", attributes, '>',
             escaped(text), "</text>\n");
}

std::string svg_bar(double x, double y, double width, double height, std::string_view css_class,
                    std::string_view title) {
  return str(R"(<rect class=")", css_class, R"(" x=")", coordinate(x), R"(" y=")", coordinate(y),
             R"(" width=")", coordinate(width), R"(" height=")", coordinate(height), R"("><title>)",
             escaped(title), "</title></rect>\n");
}

std::string draw(const Axes& axes) {
  constexpr double PIXELS_PER_X_TICK = 80, PIXELS_PER_Y_TICK = 35;
  const Scale &x = axes.x, &y = axes.y;
  const double bottom = std::max(y.from(), y.to());
  std::string out;
  if (axes.has_y_ticks) {
    const double pixels = std::abs(y.to() - y.from());
    for (const double tick : y.ticks(std::max(2, static_cast<int>(pixels / PIXELS_PER_Y_TICK)))) {
      out += str(R"(<path class="grid" d="M)", coordinate(x.from()), ' ', coordinate(y(tick)), 'H',
                 coordinate(x.to()), "\"/>\n");
      out += svg_text(x.from() - 6, y(tick) + 4, R"(text-anchor="end")", number_text(tick));
    }
  }
  const int x_ticks = std::max(2, static_cast<int>((x.to() - x.from()) / PIXELS_PER_X_TICK));
  for (const double tick : x.ticks(x_ticks)) {
    out += str(R"(<path class="axis" d="M)", coordinate(x(tick)), ' ', coordinate(bottom), "v4\"/>\n");
    out += svg_text(x(tick), bottom + 17, R"(text-anchor="middle")", number_text(tick));
  }
  out += str(R"(<path class="axis" d="M)", coordinate(x.from()), ' ', coordinate(bottom), 'H',
             coordinate(x.to()), "\"/>\n");
  out +=
      svg_text((x.from() + x.to()) / 2, bottom + 34, R"(class="label" text-anchor="middle")", axes.x_label);
  if (!axes.y_label.empty())
    out += svg_text(4, std::min(y.from(), y.to()) - 8, R"(class="label")", axes.y_label);
  return out;
}

std::string legend(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string out = R"(<p class="legend">)";
  for (const auto& [css_class, name] : entries) {
    out += str(R"(<span class="key"><svg width="12" height="12"><rect class=")", css_class,
               R"(" width="12" height="12"/></svg> )", escaped(name), "</span> ");
  }
  return out + "</p>\n";
}

std::string series_class(std::size_t index) { return str('s', index % SERIES_COLOURS); }

}  // namespace lockstep::cli
