#include "cli/plan/pipeline_picture.h"

#include <algorithm>
#include <array>
#include <limits>

#include "cli/report/svg.h"
#include "lockstep/base/str.h"

namespace lockstep::cli {
namespace {

// All in pixels.
constexpr double PICTURE_LEFT = 70, PICTURE_TOP = 40, PICTURE_ROW = 30, PICTURE_GAP = 6, PICTURE_RIGHT = 20,
                 PICTURE_BELOW = 80;
constexpr double PICTURE_LETTER = 7.5, PICTURE_MARGIN = 6;
constexpr double PICTURE_NARROWEST = 600, PICTURE_WIDEST = 6000;
constexpr double PICTURE_PALEST = 0.35;

struct ActionStyle {
  PipelineActionKind kind;
  const char* css_class;
  const char* colour;
  const char* name;
};

constexpr std::array ACTION_STYLES = std::to_array<ActionStyle>({
    {PipelineActionKind::FORWARD, "f", "#6ea6e0", "forward"},
    {PipelineActionKind::RECOMPUTE, "r", "#b9b9b9", "recompute"},
    {PipelineActionKind::BACKWARD, "b", "#7cc47f", "backward"},
    {PipelineActionKind::BACKWARD_INPUT, "i", "#58c2b8", "gradient of the inputs"},
    {PipelineActionKind::BACKWARD_WEIGHT, "w", "#f0b15d", "gradient of the weights"},
});

const ActionStyle& style_of(PipelineActionKind kind) {
  return *std::find_if(ACTION_STYLES.begin(), ACTION_STYLES.end(),
                       [&](const ActionStyle& s) { return s.kind == kind; });
}

double label_width(const std::string& label) {
  return PICTURE_LETTER * static_cast<double>(label.size()) + PICTURE_MARGIN;
}

// Wide enough for the label of the shortest action, unless the picture would be too wide for a viewer.
double drawing_width(const PipelineTimeline& timeline) {
  double pixels = 0;  // of a unit of time
  for (const RankTimeline& rank : timeline.ranks)
    for (const auto& [action, start, end] : rank.actions)
      if (end > start)
        pixels = std::max(pixels,
                          label_width(label_of(action, timeline.shape.virtual_stages > 1)) / (end - start));
  return std::clamp(pixels * timeline.makespan(), PICTURE_NARROWEST, PICTURE_WIDEST);
}

std::string box_of(const PipelineTimeline& timeline, const TimedAction& timed, const Scale& x, double y) {
  const auto& [action, start, end] = timed;
  const double left = x(start), width = x(end) - x(start);
  const int chunks = timeline.shape.virtual_stages;
  const double opacity = chunks == 1 ? 1 : 1 - (1 - PICTURE_PALEST) * action.chunk / (chunks - 1);
  const std::string label = label_of(action, chunks > 1);
  std::string box = str(R"(<g fill-opacity=")", coordinate(opacity), "\">",
                        svg_bar(left, y, width, PICTURE_ROW, style_of(action.kind).css_class,
                                str(label, ": ", number_text(start), " to ", number_text(end))),
                        "</g>\n");
  if (width >= label_width(label) - PICTURE_MARGIN)
    box += svg_text(left + width / 2, y + PICTURE_ROW / 2 + 4, R"(text-anchor="middle")", label);
  return box;
}

std::string style_sheet() {
  std::string text =
      "<style>text{font:12px sans-serif;fill:#222}rect{stroke:#fff;stroke-width:1}"
      ".axis{stroke:#888;fill:none}.label{fill:#555}.idle{fill:#f1f1f1}";
  for (const ActionStyle& style : ACTION_STYLES)
    text += str('.', style.css_class, "{fill:", style.colour, '}');
  return text + "</style>\n";
}

bool has_kind(const PipelineTimeline& timeline, PipelineActionKind kind) {
  return std::any_of(timeline.ranks.begin(), timeline.ranks.end(), [&](const RankTimeline& rank) {
    return std::any_of(rank.actions.begin(), rank.actions.end(),
                       [&](const TimedAction& timed) { return timed.action.kind == kind; });
  });
}

// The kinds of actions that there are, and what the picture shows as numbers.
std::string keys_of(const PipelineTimeline& timeline, double y) {
  std::string text;
  double x = PICTURE_LEFT;
  for (const ActionStyle& style : ACTION_STYLES) {
    if (!has_kind(timeline, style.kind)) continue;
    text += str(R"(<rect class=")", style.css_class, R"(" x=")", coordinate(x), R"(" y=")", coordinate(y),
                R"(" width="14" height="14"/>)", '\n');
    text += svg_text(x + 19, y + 11, "", style.name);
    x += 35 + PICTURE_LETTER * static_cast<double>(std::string(style.name).size());
  }
  return text;
}

}  // namespace

std::string pipeline_svg(const PipelineTimeline& timeline) {
  const double width = drawing_width(timeline), makespan = timeline.makespan();
  const auto ranks = static_cast<double>(timeline.ranks.size());
  const double bottom = PICTURE_TOP + ranks * (PICTURE_ROW + PICTURE_GAP);
  const Scale x(0, makespan, PICTURE_LEFT, PICTURE_LEFT + width);
  const std::string size = str(coordinate(PICTURE_LEFT + width + PICTURE_RIGHT), R"(" height=")",
                               coordinate(bottom + PICTURE_BELOW));
  std::string text =
      str(R"(<svg xmlns="http://www.w3.org/2000/svg" width=")", size, R"(" viewBox="0 0 )",
          coordinate(PICTURE_LEFT + width + PICTURE_RIGHT), ' ', coordinate(bottom + PICTURE_BELOW), "\">\n",
          style_sheet(), R"(<rect width="100%" height="100%" fill="#fff"/>)", '\n');
  text += svg_text(PICTURE_LEFT, 24, "",
                   str(to_text(timeline.shape), "; time ", number_text(makespan), ", bubble ",
                       coordinate(100 * timeline.bubble()), " %"));
  for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    const double y = PICTURE_TOP + static_cast<double>(rank) * (PICTURE_ROW + PICTURE_GAP);
    text += svg_text(PICTURE_LEFT - 10, y + PICTURE_ROW / 2 + 4, R"(text-anchor="end")", str("rank ", rank));
    text += svg_bar(PICTURE_LEFT, y, width, PICTURE_ROW, "idle", "idle");
    for (const TimedAction& timed : timeline.ranks[rank].actions)
      if (timed.end > timed.start) text += box_of(timeline, timed, x, y);
  }
  const Axes axes{
      .x = x, .y = Scale(0, 1, bottom, PICTURE_TOP), .x_label = "", .y_label = "", .has_y_ticks = false};
  return text + draw(axes) + keys_of(timeline, bottom + 45) + "</svg>\n";
}

}  // namespace lockstep::cli
