#include "cli/report/buckets.h"

#include <algorithm>

#include "cli/report/svg.h"
#include "lockstep/base/str.h"

namespace lockstep::cli {
namespace {

constexpr int TIMELINE_WIDTH = 960;
constexpr double TRACK_LEFT = 84, TRACK_RIGHT = TIMELINE_WIDTH - 20;
constexpr double LANE_HEIGHT = 16, WORK_HEIGHT = 8, RANK_GAP = 12;
constexpr std::size_t MOST_LANES = 8;
constexpr std::size_t LAST_CALLS = 24;

// The calls of a rank in a window, each on the first free lane.
struct TimelineRank {
  int rank = 0;
  std::vector<std::pair<std::size_t, const ReportCall*>> calls;  // lane and call
  std::size_t lanes = 1;
};

TimelineRank rank_in(const RankCalls& rank, const Span& window) {
  std::vector<const ReportCall*> calls;
  for (const ReportCall& call : rank.calls)
    if (call.time.start < window.end && call.time.end > window.start) calls.push_back(&call);
  std::stable_sort(calls.begin(), calls.end(),
                   [](const ReportCall* a, const ReportCall* b) { return a->time.start < b->time.start; });
  TimelineRank out{.rank = rank.rank, .calls = {}};
  std::vector<std::int64_t> free_at;
  for (const ReportCall* call : calls) {
    auto lane = std::find_if(free_at.begin(), free_at.end(),
                             [&](std::int64_t since) { return since <= call->time.start; });
    if (lane == free_at.end() && free_at.size() < MOST_LANES) lane = free_at.insert(lane, 0);
    if (lane == free_at.end()) lane = free_at.end() - 1;
    *lane = std::max(*lane, call->time.end);
    out.calls.emplace_back(lane - free_at.begin(), call);
  }
  out.lanes = std::max<std::size_t>(free_at.size(), 1);
  return out;
}

class Timeline {
 public:
  Timeline(const ClockCalls& calls, const TimelineWindow& window, const std::vector<RankProfile>& profiles)
      : profiles_(profiles),
        window_(window.time),
        arrivals_(arrivals(calls)),
        x_(0, ms(window.time.end), TRACK_LEFT, TRACK_RIGHT) {
    for (const RankCalls& rank : calls.ranks) ranks_.push_back(rank_in(rank, window.time));
  }

  std::string draw() const {
    double height = 8;
    for (const TimelineRank& rank : ranks_) height += height_of(rank);
    const Axes axes{
        .x = x_, .y = Scale(0, 1, height, 8), .x_label = "time (ms)", .y_label = "", .has_y_ticks = false};
    std::string out =
        open_svg(TIMELINE_WIDTH, static_cast<int>(height) + 44, "collectives over time by rank") +
        cli::draw(axes);
    double y = 8;
    for (const TimelineRank& rank : ranks_) {
      out += draw(rank, y);
      y += height_of(rank);
    }
    return out + "</svg>\n";
  }

 private:
  double ms(std::int64_t time) const { return static_cast<double>(time - window_.start) / 1e6; }

  static double height_of(const TimelineRank& rank) {
    return WORK_HEIGHT + static_cast<double>(rank.lanes) * LANE_HEIGHT + RANK_GAP;
  }

  std::string draw(const TimelineRank& rank, double y) const {
    std::string out =
        svg_text(TRACK_LEFT - 8, y + WORK_HEIGHT + 12, R"(text-anchor="end")", str("rank ", rank.rank));
    for (const RankProfile& profile : profiles_) {
      if (profile.rank != rank.rank) continue;
      out += draw_work(profile.backward, y, "backward");
      out += draw_work(without(profile.operations, profile.backward), y, "operations");
    }
    for (const auto& [lane, call] : rank.calls)
      out += draw(*call, rank.rank, y + WORK_HEIGHT + static_cast<double>(lane) * LANE_HEIGHT);
    return out;
  }

  // Draws one path, because there are thousands of operations. Closes gaps that are too small to see.
  std::string draw_work(const Spans& spans, double y, const char* css_class) const {
    constexpr double VISIBLE = 0.3;
    std::string path;
    double from = TRACK_LEFT, to = TRACK_LEFT;
    const auto put = [&] {
      if (to > from)
        path += str('M', coordinate(from), ' ', coordinate(y), 'H', coordinate(to), 'v', WORK_HEIGHT - 2, 'H',
                    coordinate(from), 'z');
    };
    for (const Span& span : within(spans, window_)) {
      const double start = x_(ms(span.start));
      if (start > to + VISIBLE) {
        put();
        from = start;
      }
      to = x_(ms(span.end));
    }
    put();
    return str(R"(<path class=")", css_class, R"(" d=")", path, "\"/>\n");
  }

  std::string draw(const ReportCall& call, int rank, double y) const {
    const double from = std::max(x_(ms(call.time.start)), TRACK_LEFT);
    const double to = std::min(x_(ms(call.time.end)), TRACK_RIGHT);
    const auto arrival = arrivals_.find({call.group, call.sequence});
    const bool is_last = arrival != arrivals_.end() && arrival->second.last == rank;
    std::string title =
        str("rank ", rank, ": ", call.verb, " #", call.sequence, " on group ", in_quotes(call.group), ", ",
            call.bytes, " bytes, from ", number_text(ms(call.time.start)), " ms for ",
            ms_text(static_cast<double>(call.time.end - call.time.start)));
    if (is_last)
      title +=
          str("; came last, ", ms_text(static_cast<double>(arrival->second.lateness)), " behind the first");
    std::string out = svg_bar(from, y, std::max(to - from, 1.0), LANE_HEIGHT - 3,
                              call.is_bucket ? "bucket" : "call", title);
    if (is_last && from > TRACK_LEFT)
      out +=
          str(R"(<path class="last" d="M)", coordinate(from - 4), ' ', coordinate(y - 1), "h8l-4 7z\"/>\n");
    const std::string label = str('#', call.sequence);
    constexpr double CHARACTER = 7;
    if (to - from > static_cast<double>(label.size()) * CHARACTER + 6)
      out += svg_text((from + to) / 2, y + 10.5, R"(class="on" text-anchor="middle")", label);
    return out;
  }

  const std::vector<RankProfile>& profiles_;
  Span window_;
  std::map<CollectiveName, Arrival> arrivals_;
  Scale x_;
  std::vector<TimelineRank> ranks_;
};

// The step of median length, by its number.
std::size_t median_index(const std::vector<Span>& steps) {
  std::vector<std::size_t> order(steps.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return steps[a].end - steps[a].start < steps[b].end - steps[b].start;
  });
  return order[order.size() / 2];
}

std::optional<TimelineWindow> window_of_step(const std::vector<RankProfile>& profiles) {
  const auto first = std::find_if(profiles.begin(), profiles.end(),
                                  [](const RankProfile& profile) { return !profile.steps.empty(); });
  if (first == profiles.end()) return std::nullopt;
  const std::size_t step = median_index(first->steps);
  Span time = first->steps[step];
  for (const RankProfile& profile : profiles) {
    if (step >= profile.steps.size()) continue;
    const Span& other = profile.steps[step];
    const bool overlaps = other.start < first->steps[step].end && other.end > first->steps[step].start;
    if (overlaps) time = {std::min(time.start, other.start), std::max(time.end, other.end)};
  }
  return TimelineWindow{
      time, str("step ", step, " of the profile, the one of median length on rank ", first->rank)};
}

std::int64_t median_of(std::vector<std::int64_t> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::string arrival_cells(const ArrivalCount& count) {
  if (count.collectives == 0) return "<td>none</td><td></td><td></td>";
  std::string out = str(R"(<td class="n">)", count.last, " of ", count.collectives, "</td>");
  if (count.last == 0) return out + "<td></td><td></td>";
  const std::int64_t largest = *std::max_element(count.lateness.begin(), count.lateness.end());
  return out + str(R"(<td class="n">)", ms_number(static_cast<double>(median_of(count.lateness))),
                   R"(</td><td class="n">)", ms_number(static_cast<double>(largest)), "</td>");
}

}  // namespace

std::optional<TimelineWindow> window_of(const std::vector<RankProfile>& profiles, const ClockCalls& calls) {
  if (auto window = window_of_step(profiles)) return window;
  std::vector<std::int64_t> starts;
  std::int64_t end = 0;
  for (const RankCalls& rank : calls.ranks) {
    std::vector<std::int64_t> own;
    for (const ReportCall& call : rank.calls) {
      own.push_back(call.time.start);
      end = std::max(end, call.time.end);
    }
    std::sort(own.begin(), own.end());
    if (!own.empty()) starts.push_back(own[own.size() - std::min(own.size(), LAST_CALLS)]);
  }
  if (starts.empty()) return std::nullopt;
  const std::int64_t start = *std::min_element(starts.begin(), starts.end());
  return TimelineWindow{{start, std::max(end, start + 1)}, "the last collectives of each rank"};
}

std::string timeline_html(const std::vector<RankProfile>& profiles, const ClockCalls& calls) {
  const auto window = window_of(profiles, calls);
  if (!window) return "";
  std::vector<std::pair<std::string, std::string>> entries = {
      {"bucket", "bucket of gradients"}, {"call", "other collective"}, {"last", "triangle: came last"}};
  if (!profiles.empty()) {
    entries.emplace_back("backward", "backward");
    entries.emplace_back("operations", "other operations");
  }
  return str("<figure>\n<figcaption>", escaped(calls.name), calls.name.empty() ? "" : ": ",
             escaped(window->what), "</figcaption>\n", Timeline(calls, *window, profiles).draw(),
             legend(entries), "</figure>\n");
}

std::string arrivals_html(const ClockCalls& calls) {
  std::string out = str("<table><caption>Who came last", calls.name.empty() ? "" : ": ", escaped(calls.name),
                        R"(</caption><tr><th rowspan="2">rank</th><th colspan="3">buckets of gradients</th>)"
                        "<th colspan=\"3\">other collectives</th></tr>\n<tr>");
  for (int i = 0; i < 2; ++i)
    out += "<th>last in</th><th>median behind the first (ms)</th><th>most (ms)</th>";
  out += "</tr>\n";
  for (const RankArrivals& rank : arrivals_of(calls))
    out += str(R"(<tr><td class="n">)", rank.rank, "</td>", arrival_cells(rank.buckets),
               arrival_cells(rank.others), "</tr>\n");
  return out + "</table>\n";
}

}  // namespace lockstep::cli
