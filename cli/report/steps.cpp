#include "cli/report/steps.h"

#include <algorithm>
#include <array>

#include "cli/report/svg.h"
#include "lockstep/base/str.h"

namespace lockstep::cli {
namespace {

constexpr int STEPS_WIDTH = 960;
constexpr int RANK_HEIGHT = 26;
constexpr double LEFT = 84, RIGHT = STEPS_WIDTH - 20;

struct StepPart {
  const char* css_class;
  const char* name;
  std::int64_t StepParts::*length;
};
constexpr std::array<StepPart, 4> STEP_PARTS = {
    {{"backward", "backward", &StepParts::backward},
     {"operations", "other operations (forward, optimizer)", &StepParts::operations},
     {"communication", "exposed communication", &StepParts::communication},
     {"rest", "rest", &StepParts::rest}}};

std::int64_t total_of(const StepParts& parts) {
  return parts.backward + parts.operations + parts.communication + parts.rest;
}

double ms(std::int64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e6; }

std::string parts_chart(const std::vector<const RankProfile*>& profiles) {
  std::int64_t longest = 0;
  for (const RankProfile* profile : profiles) longest = std::max(longest, total_of(mean_parts(*profile)));
  const double top = 8;
  const double bottom = top + static_cast<double>(profiles.size()) * RANK_HEIGHT;
  const Axes axes{.x = Scale(0, ms(longest), LEFT, RIGHT),
                  .y = Scale(0, 1, bottom, top),
                  .x_label = "mean time of a step (ms)",
                  .y_label = "",
                  .has_y_ticks = false};
  std::string out =
      "<figure>\n" +
      open_svg(STEPS_WIDTH, static_cast<int>(bottom) + 44, "mean time of a step by part and rank") +
      draw(axes);
  double y = top;
  for (const RankProfile* profile : profiles) {
    const StepParts parts = mean_parts(*profile);
    out += svg_text(LEFT - 8, y + 16, R"(text-anchor="end")", str("rank ", profile->rank));
    std::int64_t at = 0;
    for (const StepPart& part : STEP_PARTS) {
      const std::int64_t length = parts.*part.length;
      out += svg_bar(
          axes.x(ms(at)), y + 2, axes.x(ms(at + length)) - axes.x(ms(at)), RANK_HEIGHT - 6, part.css_class,
          str("rank ", profile->rank, ", ", part.name, ": ", ms_text(static_cast<double>(length))));
      at += length;
    }
    y += RANK_HEIGHT;
  }
  std::vector<std::pair<std::string, std::string>> entries;
  for (const StepPart& part : STEP_PARTS) entries.emplace_back(part.css_class, part.name);
  return out + "</svg>\n" + legend(entries) + "</figure>\n";
}

std::int64_t median_step(const RankProfile& profile) {
  std::vector<std::int64_t> lengths;
  for (const Span& step : profile.steps) lengths.push_back(step.end - step.start);
  const auto middle = lengths.begin() + static_cast<std::ptrdiff_t>(lengths.size() / 2);
  std::nth_element(lengths.begin(), middle, lengths.end());
  return *middle;
}

std::string parts_table(const std::vector<const RankProfile*>& profiles) {
  std::string out = "<table><tr><th>rank</th><th>steps</th><th>median step (ms)</th><th>mean step (ms)</th>";
  for (const StepPart& part : STEP_PARTS) out += str("<th>", part.name, " (ms)</th>");
  out += "</tr>\n";
  for (const RankProfile* profile : profiles) {
    const StepParts parts = mean_parts(*profile);
    out += str(R"(<tr><td class="n">)", profile->rank, R"(</td><td class="n">)", profile->steps.size(),
               R"(</td><td class="n">)", ms_number(static_cast<double>(median_step(*profile))),
               R"(</td><td class="n">)", ms_number(static_cast<double>(total_of(parts))), "</td>");
    for (const StepPart& part : STEP_PARTS)
      out += str(R"(<td class="n">)", ms_number(static_cast<double>(parts.*part.length)), "</td>");
    out += "</tr>\n";
  }
  return out + "</table>\n";
}

// One line: the length of each step.
struct StepCourse {
  std::string name;
  std::vector<std::int64_t> lengths;
};

// One line for each rank. If there are more ranks than colours, the fastest, the median and the slowest.
std::vector<StepCourse> courses_of(const std::vector<const RankProfile*>& profiles) {
  constexpr std::size_t MOST_LINES = 6;
  std::vector<StepCourse> ranks;
  std::size_t steps = 0;
  for (const RankProfile* profile : profiles) {
    StepCourse& course = ranks.emplace_back(StepCourse{str("rank ", profile->rank), {}});
    for (const Span& step : profile->steps) course.lengths.push_back(step.end - step.start);
    steps = std::max(steps, course.lengths.size());
  }
  if (ranks.size() <= MOST_LINES) return ranks;
  std::vector<StepCourse> out = {{"fastest rank", {}}, {"median rank", {}}, {"slowest rank", {}}};
  for (std::size_t i = 0; i < steps; ++i) {
    std::vector<std::int64_t> lengths;
    for (const StepCourse& rank : ranks)
      if (i < rank.lengths.size()) lengths.push_back(rank.lengths[i]);
    std::sort(lengths.begin(), lengths.end());
    out[0].lengths.push_back(lengths.front());
    out[1].lengths.push_back(lengths[lengths.size() / 2]);
    out[2].lengths.push_back(lengths.back());
  }
  return out;
}

std::string draw_course(const Axes& axes, const StepCourse& course, const std::string& css_class) {
  constexpr std::size_t MOST_MARKED = 60;
  std::string path, marks;
  for (std::size_t i = 0; i < course.lengths.size(); ++i) {
    const std::string x = coordinate(axes.x(static_cast<double>(i)));
    const std::string y = coordinate(axes.y(ms(course.lengths[i])));
    path += str(i == 0 ? 'M' : 'L', x, ' ', y);
    if (course.lengths.size() > MOST_MARKED) continue;
    marks += str(R"(<circle class=")", css_class, R"(" cx=")", x, R"(" cy=")", y, R"(" r="2.5"><title>)",
                 course.name, ", step ", i, ": ", ms_text(static_cast<double>(course.lengths[i])),
                 "</title></circle>\n");
  }
  return str(R"(<path class="line )", css_class, R"(" d=")", path, "\"/>\n", marks);
}

std::string course_chart(const std::vector<const RankProfile*>& profiles) {
  constexpr int HEIGHT = 240;
  const std::vector<StepCourse> courses = courses_of(profiles);
  std::int64_t longest = 0;
  std::size_t most = 1;
  for (const StepCourse& course : courses) {
    most = std::max(most, course.lengths.size());
    longest = std::max(longest, *std::max_element(course.lengths.begin(), course.lengths.end()));
  }
  const Axes axes{.x = Scale(0, static_cast<double>(most - 1), LEFT, RIGHT),
                  .y = Scale(0, ms(longest) * 1.05, HEIGHT - 44, 26),
                  .x_label = "step of the profile",
                  .y_label = "time of the step (ms)"};
  std::string out = "<figure>\n" + open_svg(STEPS_WIDTH, HEIGHT, "time of each step by rank") + draw(axes);
  std::vector<std::pair<std::string, std::string>> entries;
  for (const StepCourse& course : courses) {
    const std::string css_class = series_class(entries.size());
    out += draw_course(axes, course, css_class);
    entries.emplace_back(css_class, course.name);
  }
  return out + "</svg>\n" + legend(entries) + "</figure>\n";
}

}  // namespace

std::string steps_html(const std::vector<RankProfile>& profiles) {
  std::vector<const RankProfile*> with_steps;
  for (const RankProfile& profile : profiles)
    if (!profile.steps.empty()) with_steps.push_back(&profile);
  if (with_steps.empty()) return "";
  return parts_chart(with_steps) +
         R"(<p class="note">Means leave out the first step, where there are three or more. Backward: )"
         "operations "
         "of the backward pass. Exposed communication: collectives and messages in flight while no operation "
         "of libtorch runs on this rank. Rest: neither, such as loading data and the program's own "
         "code.</p>\n" +
         parts_table(with_steps) + course_chart(with_steps);
}

}  // namespace lockstep::cli
