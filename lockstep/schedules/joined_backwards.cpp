#include "lockstep/schedules/joined_backwards.h"

#include <map>
#include <set>
#include <utility>

#include "lockstep/schedules/pipeline_timeline.h"

namespace lockstep {
namespace {

using enum PipelineActionKind;
using Place = std::pair<int, int>;  // micro-batch and chunk

constexpr double ROUNDING = 1 + 1e-9;
constexpr double MESSAGE = 0.1;                 // of a part's forward
constexpr std::size_t MOST_LOOKS = 10'000'000;  // at actions, of all trials together

struct StepTimes {
  double without_messages = 0;
  double with_messages = 0;
};

class Joiner {
 public:
  explicit Joiner(PipelineSchedule schedule) : schedule_(std::move(schedule)), longest_(times()) {
    longest_.without_messages *= ROUNDING;
    longest_.with_messages *= ROUNDING;
  }

  PipelineSchedule run() {
    for (PipelineActions& row : schedule_.ranks) {
      std::vector<Place> places;
      for (const PipelineAction& action : row)
        if (action.kind == BACKWARD_INPUT) places.emplace_back(action.micro_batch, action.chunk);
      join(row, places);
    }
    return std::move(schedule_);
  }

 private:
  // Joins as many of `places` as the step takes no longer for.
  void join(PipelineActions& row, const std::vector<Place>& places) {
    if (places.empty() || looks_ > MOST_LOOKS) return;
    PipelineActions before = std::exchange(row, joined(row, {places.begin(), places.end()}));
    const StepTimes now = times();
    if (now.without_messages <= longest_.without_messages && now.with_messages <= longest_.with_messages)
      return;
    row = std::move(before);
    if (places.size() == 1) return;
    const auto middle = places.begin() + static_cast<std::ptrdiff_t>(places.size() / 2);
    join(row, {places.begin(), middle});
    join(row, {middle, places.end()});
  }

  // With those of `places` joined before which no gradient of the chunk's parameters is left for later: a
  // parameter's gradients are added in the order of micro-batches.
  static PipelineActions joined(const PipelineActions& row, const std::set<Place>& places) {
    PipelineActions all;
    std::set<Place> whole;
    std::map<int, int> later;  // by chunk: gradients of parameters
    for (PipelineAction action : row) {
      const Place place{action.micro_batch, action.chunk};
      if (action.kind == BACKWARD_INPUT && places.contains(place) && later[action.chunk] == 0) {
        action.kind = BACKWARD;
        whole.insert(place);
      }
      if (action.kind == BACKWARD_WEIGHT && whole.contains(place)) continue;
      if (action.kind == BACKWARD_INPUT) ++later[action.chunk];
      if (action.kind == BACKWARD_WEIGHT) --later[action.chunk];
      all.push_back(action);
    }
    return all;
  }

  StepTimes times() {
    const PipelineWork& work = schedule_.shape.work;
    PipelineTimes times{.forward = work.forward,
                        .backward_input = work.backward_input,
                        .backward_weight = work.backward_weight,
                        .sizes = {}};
    for (const PipelineActions& row : schedule_.ranks) looks_ += 2 * row.size();
    StepTimes found{.without_messages = pipeline_timeline(schedule_, times).makespan()};
    times.transfer = MESSAGE * work.forward / schedule_.shape.virtual_stages;
    found.with_messages = pipeline_timeline(schedule_, times).makespan();
    return found;
  }

  PipelineSchedule schedule_;
  std::size_t looks_ = 0;
  StepTimes longest_;
};

}  // namespace

PipelineSchedule with_joined_backwards(PipelineSchedule schedule) {
  if (schedule.shape.kind != PipelineScheduleKind::ZB_V) return schedule;
  return Joiner(std::move(schedule)).run();
}

}  // namespace lockstep
