#include "lockstep/schedules/pipeline_chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <vector>

#include "lockstep/base/str.h"

namespace lockstep {
namespace {

// Characters of a unit of time, so that the shortest action is `width` of them.
double characters_per_time(const PipelineTimeline& timeline, std::size_t width) {
  double shortest = std::numeric_limits<double>::infinity();
  for (const RankTimeline& rank : timeline.ranks)
    for (const TimedAction& timed : rank.actions)
      if (timed.end > timed.start) shortest = std::min(shortest, timed.end - timed.start);
  return static_cast<double>(width) / shortest;
}

std::size_t widest_label(const PipelineTimeline& timeline) {
  std::size_t widest = 0;
  for (const RankTimeline& rank : timeline.ranks)
    for (const TimedAction& timed : rank.actions)
      widest = std::max(widest, label_of(timed.action, timeline.shape.virtual_stages > 1).size());
  return widest;
}

// A box of `width` characters, the last of which is a space.
std::string box(std::string label, std::size_t smallest, std::size_t width) {
  if (label.size() + 1 > width) label.resize(width == 0 ? 0 : width - 1);  // an action of no time
  if (width > smallest) label.resize(width - 1, '-');
  label.resize(width, ' ');
  return label;
}

std::string without_spaces_behind(std::string line) {
  line.resize(line.find_last_not_of(' ') + 1);
  return line;
}

std::string rank_name(std::size_t rank, std::size_t ranks) {
  std::string name = str("rank ", rank);
  name.resize(str("rank ", ranks - 1).size(), ' ');
  return name + "  ";
}

// At most four significant digits, without zeros behind them.
std::string time_text(double time) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g", time);
  return text.data();
}

std::string percent_text(double part) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f %%", 100 * part);
  return text.data();
}

std::string right(const std::string& text, std::size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

}  // namespace

std::string to_text(const PipelineTimeline& timeline, std::size_t widest) {
  const std::size_t smallest = widest_label(timeline) + 1;
  const double scale = characters_per_time(timeline, smallest);
  if (timeline.makespan() * scale > static_cast<double>(widest)) return "";
  std::string text;
  for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    std::string line;
    for (const auto& [action, start, end] : timeline.ranks[rank].actions) {
      const auto from = static_cast<std::size_t>(std::llround(start * scale));
      const auto to = static_cast<std::size_t>(std::llround(end * scale));
      line.resize(from, ' ');
      line += box(label_of(action, timeline.shape.virtual_stages > 1), smallest, to - from);
    }
    text += without_spaces_behind(rank_name(rank, timeline.ranks.size()) + line) + '\n';
  }
  return text;
}

std::string cost_text(const PipelineTimeline& timeline) {
  constexpr std::size_t IDLE = 8, BUBBLE = 10, IN_FLIGHT = 12, ACTIVATIONS = 14, SIZE = 8;
  const bool with_sizes = !timeline.shape.work.part_sizes.empty();
  const double makespan = timeline.makespan();
  const std::size_t ranks = timeline.ranks.size();
  std::string text = str("time ", time_text(makespan), ", bubble ", percent_text(timeline.bubble()), "\n\n",
                         std::string(rank_name(0, ranks).size() - 2, ' '), right("idle", IDLE),
                         right("bubble", BUBBLE), right("in flight", IN_FLIGHT),
                         right("activations", ACTIVATIONS), with_sizes ? right("size", SIZE) : "", '\n');
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const RankTimeline& mine = timeline.ranks[rank];
    const double idle = std::max(0.0, makespan - mine.work);
    text += str(rank_name(rank, ranks).substr(0, rank_name(rank, ranks).size() - 2),
                right(time_text(idle), IDLE), right(percent_text(idle / makespan), BUBBLE),
                right(str(mine.peak_in_flight), IN_FLIGHT), right(str(mine.peak_activations), ACTIVATIONS),
                with_sizes ? right(time_text(mine.peak_size), SIZE) : "", '\n');
  }
  return text;
}

}  // namespace lockstep
