// Text and drawings of a report: escaping, numbers as text, axes. Pure.
//
//   Axes axes{.x = Scale(0, 100, 50, 400), .y = Scale(0, 2.5, 200, 10), .x_label = "step", .y_label =
//   "loss"};
//   html += open_svg(420, 240, "loss over step") + draw(axes) + ... + "</svg>";
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::cli {

// For HTML's text and attributes. Control characters become \xNN, and long text is cut.
std::string escaped(std::string_view text);
// The same without a limit of length.
std::string escaped_whole(std::string_view text);

// Six significant digits: "0.25", "1.5e-07", "NaN".
std::string number_text(double value);
// Milliseconds: "12.3 ms"; without the unit: "12.3".
std::string ms_text(double nanoseconds);
std::string ms_number(double nanoseconds);
// A coordinate: at most two digits after the point.
std::string coordinate(double value);

// Maps values to coordinates, linearly. An empty or infinite range is widened.
class Scale {
 public:
  Scale(double low, double high, double from, double to);
  double operator()(double value) const;
  double low() const { return low_; }
  double high() const { return high_; }
  double from() const { return from_; }
  double to() const { return to_; }
  // Returns about `count` round values in the range.
  std::vector<double> ticks(int count) const;

 private:
  double low_, high_, from_, to_;
};

struct Axes {
  Scale x, y;
  std::string x_label, y_label;  // with units
  bool has_y_ticks = true;
};

std::string open_svg(int width, int height, std::string_view label);
// Lines, numbers and labels, and y's grid lines.
std::string draw(const Axes& axes);
// Text in a drawing. `attributes` are added to x and y.
std::string svg_text(double x, double y, std::string_view attributes, std::string_view text);
// A rectangle that shows `title` under the pointer.
std::string svg_bar(double x, double y, double width, double height, std::string_view css_class,
                    std::string_view title);

// Coloured squares with their names. `first` are CSS classes, as those of the bars.
std::string legend(const std::vector<std::pair<std::string, std::string>>& entries);

// The classes "s0", "s1", ... of series, repeated.
std::string series_class(std::size_t index);

}  // namespace lockstep::cli
